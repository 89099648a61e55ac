#include "ddprun/amp/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/full.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>
#include <nlohmann/json.hpp>
#include <torch/cuda.h>
#include <torch/serialize/archive.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <sstream>
#include <unordered_set>
#include <utility>

#include <ddprun/detail/comm/device_copy.h>
#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/optim/fused_optimizer.h>

#include "amp/rank_prefix.h"
#include "amp/scale_floor.h"
#include "amp/unscale.h"
#include "base/rank_prefix.h"
#include "comm/core/graph_capture.h"

namespace ddp {
namespace {

// Returns the group of the first parameter that is a shard; all shards of a model have the same group.
std::optional<GroupHandle> shard_group_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      if (const auto found = ddp::shard_group_of(parameter)) return found;
    }
  }
  return std::nullopt;
}

at::Tensor scalar(double value, at::ScalarType dtype, c10::Device device) {
  return at::full({}, value, at::TensorOptions(device).dtype(dtype));
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), rank_(amp::detail::rank_prefix(options.group)) {
  if (options_.enabled && options_.device == c10::kCUDA && !torch::cuda::is_available()) {
    TORCH_WARN("GradScaler is enabled, but CUDA is not available.  Disabling.");
    options_.enabled = false;
  }
  if (!options_.enabled) return;
  if (!(options_.growth_factor > 1.0)) fail<std::logic_error>("The growth factor must be > 1.0.");
  if (!(options_.backoff_factor < 1.0)) fail<std::logic_error>("The backoff factor must be < 1.0.");
  if (options_.agree_on_found_inf && !options_.group) {
    fail<std::invalid_argument>("GradScaler: agree_on_found_inf needs a group; set GradScalerOptions::group");
  }
  if (!amp::detail::is_scale(options_.min_scale)) {
    fail<std::invalid_argument>("GradScaler: min_scale = " + number_text(options_.min_scale) +
                                " is out of range: expected " + number_text(amp::detail::kMinScale) + " to " +
                                number_text(amp::detail::kMaxScale));
  }
  require_in_range("init_scale", options_.init_scale);
  floor_ = std::make_shared<amp::detail::ScaleFloor>(options_.min_scale, rank_ + "GradScaler: the scale");
  floor_->begin_at(options_.init_scale);
}

void GradScaler::require_in_range(const char* name, double scale) const {
  if (scale >= options_.min_scale && scale <= amp::detail::kMaxScale) return;
  fail<std::invalid_argument>(std::string("GradScaler: ") + name + " = " + number_text(scale) +
                              " is out of range: expected min_scale = " + number_text(options_.min_scale) + " to " +
                              number_text(amp::detail::kMaxScale));
}

void GradScaler::require_scale(const std::string& caller) const {
  if (scale_.defined()) return;
  fail<std::logic_error>("Attempted " + caller +
                         " but _scale is None.  This may indicate your script did not use scaler.scale(loss or "
                         "outputs) earlier in the iteration.");
}

at::Tensor GradScaler::scale(const at::Tensor& outputs) {
  if (!options_.enabled) return outputs;
  if (!scale_.defined()) {
    scale_ = scalar(options_.init_scale, at::kFloat, outputs.device());
    tracker_ = scalar(static_cast<double>(first_tracker_), at::kInt, outputs.device());
  }
  return outputs.mul(to_device(scale_, outputs.device()));
}

std::vector<at::Tensor> GradScaler::check(torch::optim::Optimizer& optimizer, const at::Tensor& inverse_scale,
                                          bool allow_half) {
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  std::unordered_set<const c10::TensorImpl*> seen;  // LibTorch's parameters() lists tied weights twice
  for (const auto& group : optimizer.param_groups()) {
    for (const at::Tensor& parameter : group.params()) {
      at::Tensor gradient = parameter.grad();
      if (!gradient.defined() || !seen.insert(parameter.unsafeGetTensorImpl()).second) continue;
      const bool half = gradient.scalar_type() == at::kHalf;
      if (half && !allow_half) fail<std::invalid_argument>("Attempting to unscale FP16 gradients.");
      if (gradient.is_sparse()) {
        // With repeated indices, the values may overflow only when they are added.
        if (half) parameter.mutable_grad() = gradient = gradient.coalesce();
        gradient = gradient._values();
      }
      gradients.push_back(std::move(gradient));
    }
  }
  std::vector<at::Tensor> found_infs = amp::detail::unscale(gradients, inverse_scale);
  if (options_.agree_on_found_inf) amp::detail::agree(found_infs, scale_.device(), *options_.group);
  // With a sharded model, each rank has different gradients, so the ranks must agree.
  if (!options_.agree_on_found_inf) {
    if (const auto group = shard_group_of(optimizer)) amp::detail::agree(found_infs, scale_.device(), *group);
  }
  return found_infs;
}

void GradScaler::unscale_(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return;
  require_scale("unscale_");
  OptimizerState& state = optimizers_[&optimizer];
  if (state.stage == Stage::kUnscaled) {
    fail<std::runtime_error>("unscale_() has already been called on this optimizer since the last update().");
  }
  if (state.stage == Stage::kStepped) fail<std::runtime_error>("unscale_() is being called after step().");
  state.found_infs = check(optimizer, amp::detail::inverse_of(scale_), /*allow_half=*/false);
  state.stage = Stage::kUnscaled;
}

at::Tensor GradScaler::step(torch::optim::Optimizer& optimizer, torch::optim::Optimizer::LossClosure closure) {
  if (!options_.enabled) return optimizer.step(std::move(closure));
  if (closure) fail<std::runtime_error>("Closure use is not currently supported if GradScaler is enabled.");
  require_scale("step");
  OptimizerState& state = optimizers_[&optimizer];
  if (state.stage == Stage::kStepped) {
    fail<std::runtime_error>("step() has already been called since the last update().");
  }
  at::Tensor result;
  if (auto* fused = dynamic_cast<optim::FusedOptimizer*>(&optimizer)) {
    // The kernel itself divides by the scale and reads found_inf, so the host does not wait for the device.
    optim::GradientScaling scaling;
    if (state.stage == Stage::kReady) {
      state.found_infs = check(optimizer, scalar(1.0, at::kFloat, scale_.device()), /*allow_half=*/true);
      scaling.grad_scale = scale_;
    }
    scaling.found_inf = amp::detail::combine(state.found_infs, scale_.device());
    fused->step_scaled(scaling);
  } else {
    ddp::detail::refuse_capture(rank_ + "GradScaler::step with an optimizer of torch::optim",
                                "the host reads whether a gradient is infinite. Use one of ddp::optim, which does not");
    if (state.stage == Stage::kReady) unscale_(optimizer);
    if (state.found_infs.empty()) fail<std::logic_error>("No inf checks were recorded for this optimizer.");
    double found = 0;
    for (const at::Tensor& found_inf : state.found_infs) found += found_inf.item<double>();
    if (found == 0) result = optimizer.step();
  }
  state.stage = Stage::kStepped;
  return result;
}

void GradScaler::update() {
  if (!options_.enabled) return;
  require_scale("update");
  std::vector<at::Tensor> found_infs;
  for (const auto& [optimizer, state] : optimizers_) {
    found_infs.insert(found_infs.end(), state.found_infs.begin(), state.found_infs.end());
  }
  if (found_infs.empty()) fail<std::logic_error>("No inf checks were recorded prior to update.");
  at::_amp_update_scale_(scale_, tracker_, amp::detail::combine(found_infs, scale_.device()), options_.growth_factor,
                         options_.backoff_factor, options_.growth_interval);
  scale_.clamp_min_(options_.min_scale);
  floor_->check(scale_, tracker_);
  optimizers_.clear();
}

void GradScaler::update(double new_scale) {
  if (!options_.enabled) return;
  require_scale("update");
  require_in_range("new_scale", new_scale);
  scale_.fill_(new_scale);
  floor_->begin_at(new_scale);
  optimizers_.clear();
}

void GradScaler::update(const at::Tensor& new_scale) {
  if (!options_.enabled) return;
  require_scale("update");
  if (!new_scale.defined() || new_scale.device().type() != options_.device || new_scale.numel() != 1 ||
      new_scale.requires_grad()) {
    fail<std::logic_error>(
        "new_scale should be a float or a 1-element torch.cuda.FloatTensor or torch.FloatTensor with "
        "requires_grad=False.");
  }
  if (new_scale.dim() != 0) {
    std::ostringstream text;
    text << "output with shape [] doesn't match the broadcast shape " << new_scale.sizes();
    fail<std::runtime_error>(text.str());
  }
  const at::NoGradGuard no_grad;
  at::Tensor value = at::empty_like(scale_);
  copy_into(value, new_scale);
  value.clamp_(options_.min_scale, amp::detail::kMaxScale);
  // The host would have to wait to read the value, so NaN is replaced here instead of being refused.
  scale_.copy_(at::where(value.isnan(), scale_, value));
  floor_->begin_at_unknown();
  optimizers_.clear();
}

double GradScaler::get_scale() const {
  if (!options_.enabled) return 1.0;
  ddp::detail::refuse_capture(rank_ + "GradScaler::get_scale", "the host reads the scale. Read it between replays");
  if (!scale_.defined()) return options_.init_scale;
  const auto scale = scale_.item<double>();
  floor_->check(scale);
  return scale;
}

int64_t GradScaler::get_growth_tracker() const {
  if (!options_.enabled) return 0;
  ddp::detail::refuse_capture(rank_ + "GradScaler::get_growth_tracker", "the host reads it. Read it between replays");
  return tracker_.defined() ? tracker_.item<int64_t>() : first_tracker_;
}

std::optional<GradScalerState> GradScaler::state_dict() const {
  if (!options_.enabled) return std::nullopt;
  return GradScalerState{.scale = get_scale(),
                         .growth_factor = options_.growth_factor,
                         .backoff_factor = options_.backoff_factor,
                         .growth_interval = options_.growth_interval,
                         .growth_tracker = get_growth_tracker()};
}

void GradScaler::load_state_dict(const std::optional<GradScalerState>& state) {
  if (!options_.enabled) return;
  if (!state) {
    fail<std::runtime_error>(
        "The source state dict is empty, possibly because it was saved from a disabled instance of GradScaler.");
  }
  if (!(std::abs(state->scale) <= amp::detail::kMaxScale)) {
    fail<std::runtime_error>("GradScaler: the state's 'scale' is out of range");
  }
  options_.init_scale = std::max(state->scale, options_.min_scale);
  options_.growth_factor = state->growth_factor;
  options_.backoff_factor = state->backoff_factor;
  options_.growth_interval = state->growth_interval;
  first_tracker_ = state->growth_tracker;
  if (scale_.defined()) {
    scale_.fill_(options_.init_scale);
    tracker_.fill_(state->growth_tracker);
  }
  if (state->scale < options_.min_scale) floor_->warn_of_raised(state->scale);
  floor_->begin_at(options_.init_scale);
}

void GradScaler::require_end_of_iteration() const {
  if (optimizers_.empty()) return;
  fail<std::logic_error>(
      "A GradScaler instance may only be pickled at the beginning of an iteration, or at the end after "
      "scaler.update().");
}

void GradScaler::take_state(const GradScalerState& state) {
  const auto check = [&](const char* key, bool valid) {
    if (!valid) fail<std::runtime_error>(std::string("GradScaler: the state's '") + key + "' is out of range");
  };
  check("scale", std::isfinite(state.scale));
  check("growth_factor", std::isfinite(state.growth_factor));
  check("backoff_factor", std::isfinite(state.backoff_factor));
  check("growth_interval", state.growth_interval >= 0 && state.growth_interval <= INT32_MAX);
  check("_growth_tracker", state.growth_tracker >= 0 && state.growth_tracker <= INT32_MAX);
  load_state_dict(state);
}

std::string GradScaler::save() const {
  require_end_of_iteration();
  const auto state = state_dict();
  if (!state) return "{}";
  return nlohmann::json{{"scale", state->scale},
                        {"growth_factor", state->growth_factor},
                        {"backoff_factor", state->backoff_factor},
                        {"growth_interval", state->growth_interval},
                        {"_growth_tracker", state->growth_tracker}}
      .dump();
}

void GradScaler::load(const std::string& text) {
  if (text.starts_with("PK")) {
    torch::serialize::InputArchive archive;
    archive.load_from(text.data(), text.size());
    return load(archive);
  }
  GradScalerState state;
  try {
    const auto saved = nlohmann::json::parse(text);
    if (saved.is_object() && saved.empty()) return load_state_dict(std::nullopt);
    state = {.scale = saved.at("scale").get<double>(),
             .growth_factor = saved.at("growth_factor").get<double>(),
             .backoff_factor = saved.at("backoff_factor").get<double>(),
             .growth_interval = saved.at("growth_interval").get<int64_t>(),
             .growth_tracker = saved.at("_growth_tracker").get<int64_t>()};
  } catch (const nlohmann::json::exception& error) {
    fail<std::runtime_error>(std::string("GradScaler: this is not a GradScaler's state: ") + error.what());
  }
  take_state(state);
}

void GradScaler::save(torch::serialize::OutputArchive& archive) const {
  require_end_of_iteration();
  archive.write("enabled", c10::IValue(options_.enabled));
  const auto state = state_dict();
  if (!state) return;
  archive.write("scale", c10::IValue(state->scale));
  archive.write("growth_factor", c10::IValue(state->growth_factor));
  archive.write("backoff_factor", c10::IValue(state->backoff_factor));
  archive.write("growth_interval", c10::IValue(state->growth_interval));
  archive.write("_growth_tracker", c10::IValue(state->growth_tracker));
}

void GradScaler::load(torch::serialize::InputArchive& archive) {
  const auto read = [&](const char* key) {
    c10::IValue value;
    if (!archive.try_read(key, value)) {
      fail<std::runtime_error>(std::string("GradScaler: the archive has no '") + key +
                               "', so it was not saved by a GradScaler");
    }
    return value;
  };
  const auto number = [&](const char* key) {
    const c10::IValue value = read(key);
    if (!value.isDouble())
      fail<std::runtime_error>(std::string("GradScaler: the archive's '") + key + "' is not a number");
    return value.toDouble();
  };
  const auto count = [&](const char* key) {
    const c10::IValue value = read(key);
    if (!value.isInt()) fail<std::runtime_error>(std::string("GradScaler: the archive's '") + key + "' is not a count");
    return value.toInt();
  };
  const c10::IValue enabled = read("enabled");
  if (!enabled.isBool()) fail<std::runtime_error>("GradScaler: the archive's 'enabled' is not a bool");
  if (!enabled.toBool()) return load_state_dict(std::nullopt);
  take_state({.scale = number("scale"),
              .growth_factor = number("growth_factor"),
              .backoff_factor = number("backoff_factor"),
              .growth_interval = count("growth_interval"),
              .growth_tracker = count("_growth_tracker")});
}

}  // namespace ddp
