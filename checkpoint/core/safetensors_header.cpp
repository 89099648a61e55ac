#include "ddprun/checkpoint/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>

#include "base/joined.h"
#include "base/utf8.h"
#include "checkpoint/core/printable_text.h"
#include "checkpoint/core/safetensors_header_reader.h"

namespace ddp::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is read as it is");

std::string shape_text(const std::vector<int64_t>& shape) {
  return "[" + detail::joined(shape) + "]";
}

// Bytes that dtype and shape ask for; nothing on overflow. Strides are products of the other sizes even when one of
// them is 0, so those must fit as well.
std::optional<uint64_t> bytes_of(const TensorEntry& tensor) {
  uint64_t bytes = dtype_bytes(tensor.dtype);
  bool empty = false;
  for (const auto size : tensor.shape) {
    empty = empty || size == 0;
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(std::max<int64_t>(size, 1)), &bytes)) return std::nullopt;
  }
  if (bytes > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
  return empty ? 0 : bytes;
}

void check_names_differ(const std::vector<TensorEntry>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const auto& tensor : tensors) names.push_back(tensor.name);
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) throw FormatError("tensor " + quote_name(*twice) + " appears twice");
}

// `tensors` are sorted by position.
void check_ranges(const std::vector<TensorEntry>& tensors, uint64_t data_bytes) {
  uint64_t position = 0;
  for (const auto& tensor : tensors) {
    const auto range = std::string("[").append(std::to_string(tensor.begin)) + ", " + std::to_string(tensor.end) + ")";
    if (tensor.end < tensor.begin)
      throw FormatError("tensor " + quote_name(tensor.name) + " ends before it begins: " + range);
    if (tensor.begin != position) {
      throw FormatError("tensor " + quote_name(tensor.name) + " is at bytes " + range + ", but must begin at " +
                        std::to_string(position) + ": the data has a hole or an overlap");
    }
    const auto bytes = bytes_of(tensor);
    if (!bytes || *bytes != tensor.end - tensor.begin) {
      throw FormatError("tensor " + quote_name(tensor.name) + " of dtype " + std::string(dtype_name(tensor.dtype)) +
                        " and shape " + shape_text(tensor.shape) + " needs " +
                        (bytes ? std::to_string(*bytes) : std::string("more than 2^63")) + " bytes, but has " +
                        std::to_string(tensor.end - tensor.begin));
    }
    position = tensor.end;
  }
  if (position == data_bytes) return;
  auto message =
      "the tensors need " + std::to_string(position) + " bytes of data, but the file has " + std::to_string(data_bytes);
  if (data_bytes < position) {
    const auto first =
        std::ranges::find_if(tensors, [&](const TensorEntry& tensor) { return tensor.end > data_bytes; });
    message += ": it was truncated in tensor " + quote_name(first->name);
  }
  throw FormatError(message);
}

void append_json_string(std::string& out, const std::string& text) {
  try {
    out += nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw FormatError("the name or metadata " + quote_name(text) + " is not valid UTF-8");
  }
}

}  // namespace

uint64_t parse_header_length(std::string_view first_bytes, uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    throw FormatError("the file has " + std::to_string(file_bytes) + " bytes, too few for a safetensors file");
  }
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw FormatError("the header would have " + std::to_string(length) + " bytes, more than the allowed " +
                      std::to_string(kMaxHeaderBytes) + ": this is not a safetensors file");
  }
  if (length > file_bytes - kLengthBytes) {
    throw FormatError("the header should have " + std::to_string(length) + " bytes, but only " +
                      std::to_string(file_bytes - kLengthBytes) + " follow: the file was truncated");
  }
  return length;
}

Header parse_header(std::string_view json, uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') throw FormatError("the header does not begin with '{'");
  // nlohmann-json takes a null byte for the end of the text.
  if (json.find('\0') != std::string_view::npos) throw FormatError("the header holds a null byte");
  auto header = read_header(json);
  check_names_differ(header.tensors);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorEntry& left, const TensorEntry& right) {
    return std::tie(left.begin, left.end) < std::tie(right.begin, right.end);
  });
  check_ranges(header.tensors, data_bytes);
  return header;
}

void assign_ranges(std::vector<TensorEntry>& tensors) {
  std::sort(tensors.begin(), tensors.end(), [](const TensorEntry& left, const TensorEntry& right) {
    return left.dtype != right.dtype ? left.dtype > right.dtype : left.name < right.name;
  });
  uint64_t position = 0;
  for (auto& tensor : tensors) {
    const auto bytes = bytes_of(tensor);
    tensor.begin = position;
    if (!bytes || __builtin_add_overflow(position, *bytes, &position)) {
      throw FormatError("tensor " + quote_name(tensor.name) + " of shape " + shape_text(tensor.shape) +
                        " is too large");
    }
    tensor.end = position;
  }
}

std::string format_header(const Header& header) {
  std::string text(kLengthBytes, '\0');
  text += '{';
  const char* separator = "";
  if (!header.metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : header.metadata) {
      text += separator;
      append_json_string(text, key);
      text += ':';
      append_json_string(text, value);
      separator = ",";
    }
    text += '}';
  }
  for (const auto& tensor : header.tensors) {
    if (tensor.name == kMetadataKey) throw FormatError("a tensor cannot be named __metadata__");
    text += separator;
    append_json_string(text, tensor.name);
    text += ":{\"dtype\":\"";
    text += dtype_name(tensor.dtype);
    text += "\",\"shape\":[";
    const char* comma = "";
    for (const auto size : tensor.shape) {
      text += comma;
      text += std::to_string(size);
      comma = ",";
    }
    text += "],\"data_offsets\":[" + std::to_string(tensor.begin) + "," + std::to_string(tensor.end) + "]}";
    separator = ",";
  }
  text += '}';
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size() - kLengthBytes;
  if (length > kMaxHeaderBytes) {
    throw FormatError("the header has " + std::to_string(length) + " bytes, more than the format's " +
                      std::to_string(kMaxHeaderBytes) + ": store less metadata or fewer tensors");
  }
  std::memcpy(text.data(), &length, kLengthBytes);
  return text;
}

std::string quote_name(std::string_view name) {
  constexpr size_t kMaxLength = 120;
  size_t shown = 0;  // whole characters
  while (shown < name.size()) {
    const auto next = shown + std::max<size_t>(detail::utf8_length(name.substr(shown)), 1);
    if (next > kMaxLength) break;
    shown = next;
  }
  std::string text("'");
  text.append(printable_text(name.substr(0, shown))).append(shown < name.size() ? "…'" : "'");
  return text;
}

}  // namespace ddp::safetensors
