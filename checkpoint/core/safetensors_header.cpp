#include "ddprun/checkpoint/safetensors_header.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>

namespace ddp::safetensors {
namespace {

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian and is read as it is");

constexpr std::string_view kMetadataKey = "__metadata__";
// LibTorch's own operators stop at 64 dimensions.
constexpr size_t kMaxDimensions = 64;

struct DTypeInfo {
  std::string_view name;
  size_t bytes;
};

// Indexed by DType.
constexpr std::array kDTypes = {
    DTypeInfo{"BOOL", 1},    DTypeInfo{"U8", 1},      DTypeInfo{"I8", 1},          DTypeInfo{"F8_E5M2", 1},
    DTypeInfo{"F8_E4M3", 1}, DTypeInfo{"F8_E8M0", 1}, DTypeInfo{"F8_E4M3FNUZ", 1}, DTypeInfo{"F8_E5M2FNUZ", 1},
    DTypeInfo{"I16", 2},     DTypeInfo{"U16", 2},     DTypeInfo{"F16", 2},         DTypeInfo{"BF16", 2},
    DTypeInfo{"I32", 4},     DTypeInfo{"U32", 4},     DTypeInfo{"F32", 4},         DTypeInfo{"C64", 8},
    DTypeInfo{"F64", 8},     DTypeInfo{"I64", 8},     DTypeInfo{"U64", 8},
};
static_assert(kDTypes.size() == static_cast<size_t>(DType::kU64) + 1);

std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (const auto size : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(size);
  }
  return text + "]";
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

// Builds a Header while nlohmann-json walks the text: no document tree is built, and duplicate keys, which the tree
// would drop, are seen.
class HeaderBuilder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Header take() { return std::move(header_); }

  bool start_object(size_t) override {
    switch (place_) {
      case Place::kStart:
        place_ = Place::kTop;
        return true;
      case Place::kTopValue:
        if (key_ == kMetadataKey) {
          place_ = Place::kMetadata;
        } else {
          header_.tensors.emplace_back().name = std::move(key_);
          seen_ = {};
          place_ = Place::kTensor;
        }
        return true;
      case Place::kMetadata:
        fail("__metadata__ must map strings to strings, but " + quote_name(key_) + " is an object");
      default:
        fail_value("an object");
    }
  }

  bool end_object() override {
    if (place_ == Place::kTensor) {
      if (!seen_.dtype || !seen_.shape || !seen_.offsets) {
        fail("tensor " + quote_name(tensor().name) + " must have dtype, shape and data_offsets");
      }
      place_ = Place::kTop;
    } else if (place_ == Place::kMetadata) {
      place_ = Place::kTop;
    } else {
      place_ = Place::kEnd;
    }
    return true;
  }

  bool key(std::string& text) override {
    key_ = std::move(text);
    if (place_ == Place::kTop) {
      place_ = Place::kTopValue;
      if (key_ == kMetadataKey && std::exchange(seen_metadata_, true)) fail("__metadata__ appears twice");
    } else if (place_ == Place::kTensor) {
      if (key_ == "dtype") {
        expect_once(seen_.dtype);
      } else if (key_ == "shape") {
        expect_once(seen_.shape);
      } else if (key_ == "data_offsets") {
        expect_once(seen_.offsets);
      } else {
        fail("tensor " + quote_name(tensor().name) + " has an unknown field " + quote_name(key_));
      }
    }
    return true;
  }

  bool string(std::string& text) override {
    if (place_ == Place::kMetadata) {
      if (!header_.metadata.emplace(key_, std::move(text)).second)
        fail("metadata " + quote_name(key_) + " appears twice");
      return true;
    }
    if (place_ == Place::kTensor && key_ == "dtype") {
      const auto dtype = dtype_from_name(text);
      if (!dtype)
        fail("tensor " + quote_name(tensor().name) + " has dtype " + quote_name(text) + ", which is not supported");
      tensor().dtype = *dtype;
      return true;
    }
    fail_value("a string");
  }

  bool start_array(size_t) override {
    if (place_ == Place::kTensor && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kTensor && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      fail_value("an array");
    }
    return true;
  }

  bool end_array() override {
    if (place_ == Place::kOffsets && offsets_read_ != 2) fail_offsets();
    offsets_read_ = 0;
    place_ = Place::kTensor;
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (place_ == Place::kShape) {
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
        fail("tensor " + quote_name(tensor().name) + " has a size of " + std::to_string(value) + " in its shape");
      }
      if (tensor().shape.size() == kMaxDimensions) {
        fail("tensor " + quote_name(tensor().name) + " has more than " + std::to_string(kMaxDimensions) +
             " dimensions");
      }
      tensor().shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (place_ == Place::kOffsets) {
      if (offsets_read_ == 2) fail_offsets();
      (offsets_read_++ == 0 ? tensor().begin : tensor().end) = value;
      return true;
    }
    fail_value("a number");
  }

  bool null() override {
    // The reference reader takes null for "no metadata".
    if (place_ == Place::kTopValue && key_ == kMetadataKey) {
      place_ = Place::kTop;
      return true;
    }
    fail_value("null");
  }

  bool boolean(bool) override { fail_value("a boolean"); }
  bool number_integer(int64_t) override { fail_value("a negative number"); }
  bool number_float(double, const std::string&) override { fail_value("no whole number below 2^64"); }
  bool binary(nlohmann::json::binary_t&) override { fail_value("binary"); }

  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    fail("the header is not valid JSON (byte " + std::to_string(position) + " of the header)");
  }

 private:
  enum class Place { kStart, kTop, kTopValue, kMetadata, kTensor, kShape, kOffsets, kEnd };
  struct SeenFields {
    bool dtype = false;
    bool shape = false;
    bool offsets = false;
  };

  TensorEntry& tensor() { return header_.tensors.back(); }

  [[noreturn]] static void fail(const std::string& message) { throw FormatError(message); }

  [[noreturn]] void fail_offsets() {
    fail("tensor " + quote_name(tensor().name) + " must have exactly two data_offsets");
  }

  [[noreturn]] void fail_value(const std::string& what) {
    switch (place_) {
      case Place::kStart:
        fail("the header must be a JSON object, but is " + what);
      case Place::kTopValue:
        fail(quote_name(key_) + " in the header must be an object, but is " + what);
      case Place::kMetadata:
        fail("__metadata__ must map strings to strings, but " + quote_name(key_) + " is " + what);
      case Place::kShape:
      case Place::kOffsets:
      case Place::kTensor:
        fail("tensor " + quote_name(tensor().name) + ": " + key_ + " cannot be or hold " + what);
      default:
        fail("the header holds " + what + " where none belongs");
    }
  }

  void expect_once(bool& seen) {
    if (std::exchange(seen, true)) fail("tensor " + quote_name(tensor().name) + " has two fields named " + key_);
  }

  Header header_;
  Place place_ = Place::kStart;
  std::string key_;
  SeenFields seen_;
  bool seen_metadata_ = false;
  int offsets_read_ = 0;
};

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
    const auto range = "[" + std::to_string(tensor.begin) + ", " + std::to_string(tensor.end) + ")";
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
  if (position != data_bytes) {
    throw FormatError("the tensors need " + std::to_string(position) + " bytes of data, but the file has " +
                      std::to_string(data_bytes) + (data_bytes < position ? ": it was cut short" : ""));
  }
}

void append_json_string(std::string& out, const std::string& text) {
  try {
    out += nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw FormatError("the name or metadata " + quote_name(text) + " is not valid UTF-8");
  }
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return kDTypes.at(static_cast<size_t>(dtype)).name;
}

size_t dtype_bytes(DType dtype) {
  return kDTypes.at(static_cast<size_t>(dtype)).bytes;
}

uint64_t parse_header_length(std::string_view first_bytes, uint64_t file_bytes) {
  if (file_bytes < kLengthBytes || first_bytes.size() < kLengthBytes) {
    throw FormatError("the file has " + std::to_string(file_bytes) + " bytes, too few for a safetensors file");
  }
  uint64_t length = 0;
  std::memcpy(&length, first_bytes.data(), kLengthBytes);
  if (length > kMaxHeaderBytes) {
    throw FormatError("the header would have " + std::to_string(length) + " bytes, more than the allowed " +
                      std::to_string(kMaxHeaderBytes) + ": this is no safetensors file");
  }
  if (length > file_bytes - kLengthBytes) {
    throw FormatError("the header should have " + std::to_string(length) + " bytes, but only " +
                      std::to_string(file_bytes - kLengthBytes) + " follow: the file was cut short");
  }
  return length;
}

Header parse_header(std::string_view json, uint64_t data_bytes) {
  if (json.empty() || json.front() != '{') throw FormatError("the header does not begin with '{'");
  // nlohmann-json takes a null byte for the end of the text.
  if (json.find('\0') != std::string_view::npos) throw FormatError("the header holds a null byte");
  HeaderBuilder builder;
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  auto header = builder.take();
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
  constexpr size_t kLongest = 120;
  static constexpr char kHex[] = "0123456789abcdef";
  std::string text = "'";
  for (const char c : name.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      text += "\\x";
      text += kHex[byte >> 4];
      text += kHex[byte & 15];
    } else {
      text += c;
    }
  }
  return text + (name.size() > kLongest ? "…'" : "'");
}

}  // namespace ddp::safetensors
