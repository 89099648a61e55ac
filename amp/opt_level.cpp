#include "ddprun/amp/opt_level.h"

#include <charconv>
#include <stdexcept>
#include <system_error>

#include "amp/scale_floor.h"
#include "base/rank_prefix.h"

namespace ddp::amp {
namespace {

using c10::ScalarType;

double require_scale(double value) {
  if (detail::is_scale(value)) return value;
  throw std::invalid_argument(rank_prefix() +
                              "loss_scale must be \"dynamic\" or a number that float32 holds, from 2^-126 on, found "
                              "loss_scale=" +
                              number_text(value));
}

std::optional<double> parse_scale(std::string_view text) {
  if (text == "dynamic") return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    throw std::invalid_argument(rank_prefix() +
                                "loss_scale must be \"dynamic\" or a number, found loss_scale=" + std::string(text));
  }
  return require_scale(value);
}

bool parse_flag(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  throw std::invalid_argument(
      rank_prefix() +
      "keep_batchnorm_fp32 must be a boolean, the string 'True' or 'False', or None, found keep_batchnorm_fp32=" +
      std::string(text));
}

Properties level(const Options& options, const std::string& rank) {
  Properties properties{.enabled = true, .opt_level = options.opt_level};
  const LossScale scale = options.dtype == c10::kBFloat16 ? LossScale(1.0) : LossScale("dynamic");
  if (options.opt_level == "O0") {
    properties.cast_model_type = c10::kFloat;
  } else if (options.opt_level == "O1") {
    properties.patch_torch_functions = true;
    properties.loss_scale = scale;
  } else if (options.opt_level == "O2") {
    properties.cast_model_type = options.dtype;
    properties.keep_batchnorm_fp32 = true;
    properties.master_weights = true;
    properties.loss_scale = scale;
  } else if (options.opt_level == "O3") {
    properties.cast_model_type = options.dtype;
  } else {
    throw std::runtime_error(rank + "Unexpected optimization level " + options.opt_level +
                             ". Options are 'O0', 'O1', 'O2', 'O3'.  Note that in `O0`, `O1`, etc., the prefix O is "
                             "the letter O, not the number zero.");
  }
  return properties;
}

void check_types(const Options& options, const std::string& rank) {
  const auto require = [&](bool right, const char* name, ScalarType type, const char* allowed) {
    if (right) return;
    throw std::invalid_argument(rank + "amp.initialize: " + name + " must be " + allowed + ", found " +
                                c10::toString(type));
  };
  const auto is_half = [](ScalarType type) { return type == c10::kHalf || type == c10::kBFloat16; };
  const auto is_castable = [&](ScalarType type) { return is_half(type) || type == c10::kFloat; };
  require(is_half(options.dtype), "dtype", options.dtype, "Half or BFloat16");
  if (options.cast_model_type) {
    require(is_castable(*options.cast_model_type), "cast_model_type", *options.cast_model_type,
            "Half, BFloat16 or Float");
  }
  if (options.cast_model_outputs) {
    require(c10::isFloatingType(*options.cast_model_outputs), "cast_model_outputs", *options.cast_model_outputs,
            "a floating-point type");
  }
}

void check_numbers(const Options& options, const std::string& rank) {
  const auto refuse = [&](const std::string& what) { throw std::invalid_argument(rank + "amp.initialize: " + what); };
  if (options.num_losses < 1) refuse("num_losses must be at least 1, found " + std::to_string(options.num_losses));
  if (!(options.max_loss_scale >= detail::kMinScale)) refuse("max_loss_scale must be at least 2^-126");
  const bool has_wrong_floor = options.min_loss_scale && !(detail::is_scale(*options.min_loss_scale) &&
                                                           *options.min_loss_scale <= options.max_loss_scale);
  if (has_wrong_floor) refuse("min_loss_scale must be at least 2^-126 and at most max_loss_scale");
}

}  // namespace

LossScale::LossScale(double value) : value_(require_scale(value)) {}
LossScale::LossScale(std::string_view text) : value_(parse_scale(text)) {}
Flag::Flag(std::string_view text) : value_(parse_flag(text)) {}

Properties resolve(const Options& options, const std::string& rank) {
  if (!options.enabled) return {};
  check_types(options, rank);
  check_numbers(options, rank);
  Properties properties = level(options, rank);
  const bool is_o1 = options.opt_level == "O1";
  if (options.cast_model_type) {
    if (is_o1 && *options.cast_model_type != c10::kFloat) {
      throw std::runtime_error(rank +
                               "O1 inserts casts around Torch functions rather than model weights, so with O1, the "
                               "model weights themselves should remain FP32. If you wish to cast the model to a "
                               "different type, use opt_level='O2' or 'O3'. cast_model_type was " +
                               c10::toString(*options.cast_model_type));
    }
    properties.cast_model_type = options.cast_model_type;
  }
  if (options.patch_torch_functions) {
    if (!is_o1 && *options.patch_torch_functions) {
      throw std::runtime_error(rank +
                               "Currently, patch_torch_functions=True should only be set by selecting opt_level='O1'.");
    }
    properties.patch_torch_functions = *options.patch_torch_functions;
  }
  if (options.keep_batchnorm_fp32) {
    if (is_o1) {
      throw std::runtime_error(rank +
                               "With opt_level O1, batchnorm functions are automatically patched to run in FP32, so "
                               "keep_batchnorm_fp32 should be None. keep_batchnorm_fp32 was " +
                               (*options.keep_batchnorm_fp32 ? "True" : "False"));
    }
    properties.keep_batchnorm_fp32 = *options.keep_batchnorm_fp32;
  }
  if (options.master_weights) {
    if (is_o1) {
      throw std::runtime_error(rank +
                               "It doesn't make sense to use master_weights with O1. With O1, your model weights "
                               "themselves should be FP32.");
    }
    properties.master_weights = *options.master_weights;
  }
  if (options.loss_scale) properties.loss_scale = *options.loss_scale;
  return properties;
}

}  // namespace ddp::amp
