#include "monitor/wire/protobuf.h"

#include <bit>
#include <stdexcept>

#include "base/little_endian.h"

namespace ddp::wire {
namespace {

void append_varint(std::string& out, uint64_t value) {
  while (value >= 0x80) {
    out.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  out.push_back(static_cast<char>(value));
}

void append_key(std::string& out, uint32_t field, WireType type) {
  append_varint(out, uint64_t{field} << 3 | static_cast<uint64_t>(type));
}

}  // namespace

MessageWriter& MessageWriter::integer(uint32_t field, int64_t value) {
  append_key(encoded_, field, WireType::kVarint);
  append_varint(encoded_, static_cast<uint64_t>(value));
  return *this;
}

MessageWriter& MessageWriter::real(uint32_t field, double value) {
  append_key(encoded_, field, WireType::kFixed64);
  detail::append_integer(encoded_, std::bit_cast<uint64_t>(value));
  return *this;
}

MessageWriter& MessageWriter::real32(uint32_t field, float value) {
  append_key(encoded_, field, WireType::kFixed32);
  detail::append_integer(encoded_, std::bit_cast<uint32_t>(value));
  return *this;
}

MessageWriter& MessageWriter::bytes(uint32_t field, std::string_view value) {
  append_key(encoded_, field, WireType::kBytes);
  append_varint(encoded_, value.size());
  encoded_.append(value);
  return *this;
}

MessageWriter& MessageWriter::packed(uint32_t field, std::span<const double> values) {
  append_key(encoded_, field, WireType::kBytes);
  append_varint(encoded_, values.size() * sizeof(double));
  for (const double value : values) detail::append_integer(encoded_, std::bit_cast<uint64_t>(value));
  return *this;
}

double Field::as_double() const {
  return std::bit_cast<double>(integer);
}

float Field::as_float() const {
  return std::bit_cast<float>(static_cast<uint32_t>(integer));
}

std::optional<Field> MessageReader::next() {
  if (rest_.empty()) return std::nullopt;
  const uint64_t key = varint();
  Field field;
  field.number = static_cast<uint32_t>(key >> 3);
  if (key >> 32 != 0 || field.number == 0) throw std::runtime_error("not a protobuf message: invalid field number");
  switch (key & 7) {
    case 0:
      field.integer = varint();
      break;
    case 1:
      field.type = WireType::kFixed64;
      field.integer = detail::read_integer<uint64_t>(take(sizeof(uint64_t)));
      break;
    case 2:
      field.type = WireType::kBytes;
      field.bytes = take(varint());
      break;
    case 5:
      field.type = WireType::kFixed32;
      field.integer = detail::read_integer<uint32_t>(take(sizeof(uint32_t)));
      break;
    default:
      throw std::runtime_error("not a protobuf message: unknown wire type " + std::to_string(key & 7));
  }
  return field;
}

uint64_t MessageReader::varint() {
  uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    const auto byte = static_cast<uint8_t>(take(1).front());
    value |= static_cast<uint64_t>(byte & 0x7F) << shift;
    if ((byte & 0x80) == 0) return value;
  }
  throw std::runtime_error("not a protobuf message: an integer of more than ten bytes");
}

std::string_view MessageReader::take(uint64_t count) {
  if (count > rest_.size()) {
    throw std::runtime_error("not a protobuf message: expected " + std::to_string(count) + " more bytes, got " +
                             std::to_string(rest_.size()));
  }
  const std::string_view taken = rest_.substr(0, static_cast<size_t>(count));
  rest_.remove_prefix(static_cast<size_t>(count));
  return taken;
}

}  // namespace ddp::wire
