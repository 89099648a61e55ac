#include "monitor/wire/message_writer.h"

#include <bit>

#include "monitor/wire/little_endian.h"
#include "monitor/wire/wire_type.h"

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
  append_little_endian(encoded_, std::bit_cast<uint64_t>(value));
  return *this;
}

MessageWriter& MessageWriter::real32(uint32_t field, float value) {
  append_key(encoded_, field, WireType::kFixed32);
  append_little_endian(encoded_, std::bit_cast<uint32_t>(value));
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
  for (const double value : values) append_little_endian(encoded_, std::bit_cast<uint64_t>(value));
  return *this;
}

}  // namespace ddp::wire
