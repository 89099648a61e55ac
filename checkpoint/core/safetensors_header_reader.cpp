#include "checkpoint/core/safetensors_header_reader.h"

#include <nlohmann/json.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

namespace ddp::safetensors {
namespace {

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

// The type that the format calls `name`; nothing for another name.
std::optional<DType> dtype_from_name(std::string_view name) {
  for (size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

// LibTorch's own operators stop at 64 dimensions.
constexpr size_t kMaxDimensions = 64;

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
        fail("the shape of tensor " + quote_name(tensor().name) + " has a size of " + std::to_string(value) +
             ", which is too large");
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
  bool number_float(double, const std::string&) override { fail_value("not a whole number below 2^64"); }
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

}  // namespace

std::string_view dtype_name(DType dtype) {
  return kDTypes.at(static_cast<size_t>(dtype)).name;
}

size_t dtype_bytes(DType dtype) {
  return kDTypes.at(static_cast<size_t>(dtype)).bytes;
}

Header read_header(std::string_view json) {
  HeaderBuilder builder;
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return builder.take();
}

}  // namespace ddp::safetensors
