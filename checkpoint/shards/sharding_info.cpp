#include "checkpoint/shards/sharding_info.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <stdexcept>
#include <utility>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"

namespace ddp::shards {
namespace {

using nlohmann::json;

constexpr std::string_view kOffsets = "saved_offsets";
constexpr std::string_view kShape = "tensor_shape";  // Python's reader takes the largest end of a chunk instead

// Builds the places while nlohmann-json walks the text: headers have a place for each of their tensors, of which a tree
// of JSON values would take many times the memory.
class PlaceBuilder : public nlohmann::json_sax<json> {
 public:
  std::unordered_map<std::string, ChunkPlace> take() { return std::move(places_); }

  bool start_object(size_t /*count*/) override {
    if (depth_ == kPlacesDepth) {
      is_place_ = true;
      field_ = nullptr;
    } else if (depth_ > 0) {
      other_value();
    }
    ++depth_;
    return true;
  }

  bool end_object() override {
    --depth_;
    if (depth_ == kPlacesDepth) is_place_ = false;
    return true;
  }

  bool key(std::string& text) override {
    if (depth_ == kPlacesDepth) {
      const auto [found, is_new] = places_.try_emplace(std::move(text));
      place_ = &found->second;
      if (!is_new) place_->is_valid = false;
    } else if (depth_ == kPlaceDepth && is_place_) {
      field_ = text == kOffsets ? &place_->offsets : text == kShape ? &place_->shape : nullptr;
      if (field_ != nullptr && field_->has_value()) place_->is_valid = false;
    }
    return true;
  }

  bool start_array(size_t /*count*/) override {
    if (depth_ == kPlaceDepth && is_place_ && field_ != nullptr) {
      is_list_ = true;
      numbers_.clear();
    } else {
      other_value();
    }
    ++depth_;
    return true;
  }

  bool end_array() override {
    --depth_;
    if (depth_ == kPlaceDepth && is_list_) {
      *field_ = DimVector(numbers_);
      is_list_ = false;
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (depth_ == kListDepth && is_list_ && value <= uint64_t{INT64_MAX}) {
      numbers_.push_back(static_cast<int64_t>(value));
      return true;
    }
    return other_value();
  }

  bool null() override { return other_value(); }
  bool boolean(bool /*value*/) override { return other_value(); }
  bool number_integer(int64_t /*value*/) override { return other_value(); }
  bool number_float(double /*value*/, const std::string& /*text*/) override { return other_value(); }
  bool string(std::string& /*text*/) override { return other_value(); }
  bool binary(json::binary_t& /*bytes*/) override { return other_value(); }
  bool parse_error(size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*error*/) override {
    return false;
  }

 private:
  // How many objects and arrays are open.
  static constexpr int kPlacesDepth = 1;
  static constexpr int kPlaceDepth = 2;
  static constexpr int kListDepth = 3;

  // A value that is not a list of sizes. It does not matter in fields that other programs add.
  bool other_value() {
    const bool is_field = depth_ == kPlaceDepth && is_place_ && field_ != nullptr;
    if (depth_ == kPlacesDepth || is_field || is_list_) place_->is_valid = false;
    return true;
  }

  std::unordered_map<std::string, ChunkPlace> places_;
  ChunkPlace* place_ = nullptr;
  std::optional<DimVector>* field_ = nullptr;
  std::vector<int64_t> numbers_;
  int depth_ = 0;
  bool is_place_ = false;
  bool is_list_ = false;
};

}  // namespace

std::unordered_map<std::string, ChunkPlace> parse_sharding_info(std::string_view text) {
  PlaceBuilder builder;
  // nlohmann-json takes a null byte for the end of the text.
  if (!text.starts_with('{') || text.find('\0') != std::string_view::npos ||
      !json::sax_parse(text.begin(), text.end(), &builder)) {
    throw std::invalid_argument("no JSON object");
  }
  return builder.take();
}

void append_place(std::string& text, const std::string& name, const DimVector& offsets, const DimVector& shape) {
  text += text.empty() ? "{" : ",";
  try {
    text += json(name).dump();
  } catch (const json::exception&) {
    throw std::invalid_argument("the tensor " + safetensors::quote_name(name) + " has a name that is not UTF-8");
  }
  text.append(":{\"").append(kOffsets).append("\":[").append(detail::joined(offsets, ","));
  text.append("],\"").append(kShape).append("\":[").append(detail::joined(shape, ",")).append("]}");
}

void end_sharding_info(std::string& text) {
  text += text.empty() ? "{}" : "}";
}

}  // namespace ddp::shards
