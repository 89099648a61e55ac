#include "monitor/curves/tensor_scalar.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#include "monitor/wire/message_reader.h"

namespace ddp::curves {
namespace {

using wire::MessageReader;
using wire::WireType;

double float_of(uint64_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits));
}

double double_of(uint64_t bits) {
  return std::bit_cast<double>(bits);
}

double bfloat16_of(uint64_t bits) {
  return float_of(bits << 16);
}

double half_of(uint64_t bits) {
  const auto exponent = static_cast<int>(bits >> 10 & 0x1F);
  const auto fraction = static_cast<double>(bits & 0x3FF);
  double size = 0;
  if (exponent == 0x1F) {
    size = fraction == 0 ? std::numeric_limits<double>::infinity() : std::numeric_limits<double>::quiet_NaN();
  } else {
    size = exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  }
  return (bits & 0x8000) == 0 ? size : -size;
}

template <typename Whole>
double whole_of(uint64_t bits) {
  return static_cast<double>(static_cast<Whole>(bits));
}

struct ElementType {
  uint64_t dtype;   // DataType
  uint32_t field;   // of TensorProto: the elements, where they are not in tensor_content
  size_t size;      // in tensor_content
  bool is_integer;  // a varint in `field`
  double (*number)(uint64_t bits);
};

constexpr ElementType kElementTypes[] = {
    {1, 5, 4, false, float_of},           {2, 6, 8, false, double_of},        {3, 7, 4, true, whole_of<int32_t>},
    {4, 7, 1, true, whole_of<uint8_t>},   {5, 7, 2, true, whole_of<int16_t>}, {6, 7, 1, true, whole_of<int8_t>},
    {9, 10, 8, true, whole_of<int64_t>},  {10, 11, 1, true, whole_of<bool>},  {14, 13, 2, true, bfloat16_of},
    {17, 7, 2, true, whole_of<uint16_t>}, {19, 13, 2, true, half_of},         {22, 16, 4, true, whole_of<uint32_t>},
    {23, 17, 8, true, whole_of<uint64_t>}};

uint64_t little_endian_of(std::string_view bytes) {
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i) bits |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return bits;
}

/// The one varint that `bytes` are.
std::optional<uint64_t> single_varint(std::string_view bytes) {
  constexpr size_t kLongest = 10;
  if (bytes.empty() || bytes.size() > kLongest) return std::nullopt;
  uint64_t bits = 0;
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto byte = static_cast<uint8_t>(bytes[i]);
    if (((byte & 0x80U) == 0) != (i + 1 == bytes.size())) return std::nullopt;
    bits |= uint64_t{byte & 0x7FU} << (7 * i);
  }
  return bits;
}

/// The one element of a repeated field's packed form.
std::optional<uint64_t> packed_element(const ElementType& type, std::string_view bytes) {
  if (type.is_integer) return single_varint(bytes);
  return bytes.size() == type.size ? std::optional(little_endian_of(bytes)) : std::nullopt;
}

uint64_t dtype_of(std::string_view tensor) {
  uint64_t dtype = 0;
  MessageReader reader(tensor);
  while (const auto field = reader.next()) {
    if (field->number == 1 && field->type == WireType::kVarint) dtype = field->integer;
  }
  return dtype;
}

}  // namespace

std::optional<double> scalar_of_tensor(std::string_view tensor) {
  const uint64_t dtype = dtype_of(tensor);
  const auto* const type =
      std::ranges::find_if(kElementTypes, [&](const ElementType& each) { return each.dtype == dtype; });
  if (type == std::end(kElementTypes)) return std::nullopt;
  constexpr uint32_t kContent = 4;
  std::optional<uint64_t> bits;
  int fields = 0;  // those that hold elements; several of them are several elements
  MessageReader reader(tensor);
  while (const auto field = reader.next()) {
    if (field->number == kContent && field->type == WireType::kBytes && !field->bytes.empty()) {
      bits = field->bytes.size() == type->size ? std::optional(little_endian_of(field->bytes)) : std::nullopt;
      ++fields;
    } else if (field->number == type->field) {
      bits = field->type == WireType::kBytes ? packed_element(*type, field->bytes) : std::optional(field->integer);
      ++fields;
    }
  }
  return fields == 1 && bits ? std::optional(type->number(*bits)) : std::nullopt;
}

}  // namespace ddp::curves
