// Dynamic loss scaling for training in half precision. Reference: torch.amp.GradScaler, with the same states, checks
// and messages; Micikevicius et al., "Mixed Precision Training", ICLR 2018.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

#include <ddprun/comm/output_tensors.h>
#include <ddprun/comm/process_group.h>

namespace torch::serialize {
class InputArchive;
class OutputArchive;
}  // namespace torch::serialize

namespace ddp {

namespace amp::detail {
class ScaleFloor;
}

/// Settings of a GradScaler, all optional and equal on all ranks.
struct GradScalerOptions {
  double init_scale = 65536.0;     ///< the initial scale
  double growth_factor = 2.0;      ///< above 1: multiplies the scale after `growth_interval` good steps in a row
  double backoff_factor = 0.5;     ///< below 1: multiplies the scale after a step with an infinite or NaN gradient
  int64_t growth_interval = 2000;  ///< number of good steps in a row before the scale grows
  /// The smallest scale, from 2^-126 to `init_scale`. Python has no such limit: if every step overflows, its scale is
  /// halved until it is 0, and then gradients and weights become infinite or NaN. The default is the smallest float16
  /// above 0: with a smaller scale even a gradient of 1 is 0 in half precision.
  double min_scale = 0x1p-24;
  bool enabled = true;  ///< false: the scaler does nothing
  /// The device type of the losses. As in Python, kCUDA without CUDA disables the scaler with a warning.
  c10::DeviceType device = c10::kCUDA;
  /// The group whose rank is named in errors. Default: the rank in the launcher's environment variables.
  std::optional<GroupHandle> group{};
  /// All ranks of `group` skip a step if one of them must skip it. This is needed only if the ranks have different
  /// gradients (shards, or gradients that are not reduced yet); with DistributedDataParallel, all ranks have the same.
  /// unscale_() is then a collective; if unscale_() is not called, step() is.
  bool agree_on_found_inf = false;
};

/// The state of a scaler for checkpoints, with Python's names.
struct GradScalerState {
  double scale = 0;             ///< the factor of the losses
  double growth_factor = 0;     ///< as GradScalerOptions
  double backoff_factor = 0;    ///< as GradScalerOptions
  int64_t growth_interval = 0;  ///< as GradScalerOptions
  int64_t growth_tracker = 0;   ///< good steps since the scale changed; Python's "_growth_tracker"
};

/// Multiplies losses so that small gradients survive in half precision, divides the gradients before the step, and
/// skips steps whose gradients overflowed.
///
///     ddp::GradScaler scaler;
///     for (…) {
///       optimizer.zero_grad();
///       torch::Tensor loss;
///       {
///         ddp::Autocast autocast(device);
///         loss = loss_of(model(x), y);
///       }
///       scaler.scale(loss).backward();
///       scaler.unscale_(optimizer);                                  // only to look at or clip the gradients
///       scaler.step(optimizer);
///       scaler.update();
///     }
///
/// The scale is never less than GradScalerOptions::min_scale. Each rank warns once, on standard error, when the scale
/// has been reduced to that minimum. On the CPU that update() warns. On other devices the host does not wait, so a
/// later update(), or a call that reads the scale, warns.
///
/// With the optimizers of ddp::optim, no call makes the host wait for the device. With other optimizers, step() waits
/// once to decide whether to skip. Errors have Python's messages, with the rank in front: std::runtime_error where
/// Python raises RuntimeError, std::invalid_argument for ValueError, std::logic_error for AssertionError.
class GradScaler {
 public:
  /// Throws std::logic_error for a growth factor that is not above 1 or a backoff factor that is not below 1, and
  /// std::invalid_argument for scales out of range and for `agree_on_found_inf` without a group.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;

  /// Returns `outputs` times the scale. The first call creates the scale, on the device of `outputs`.
  at::Tensor scale(const at::Tensor& outputs);

  /// The same for all tensors in a vector, array, tuple, map … (see <ddprun/comm/output_tensors.h>), on any devices.
  /// Throws std::invalid_argument for an unsupported type.
  template <typename Outputs>
  requires(!std::is_convertible_v<const Outputs&, const at::Tensor&>) Outputs scale(Outputs outputs) {
    const bool known = for_each_tensor(outputs, [this](auto& tensor) { tensor = scale(tensor); });
    if (!known) fail<std::invalid_argument>("outputs must be a Tensor or an iterable of Tensors");
    return outputs;
  }

  /// Divides the gradients of `optimizer` by the scale, in place (a sparse half gradient is replaced by its coalesced
  /// form). Call it before step(), and at most once between two calls of update(). Throws std::invalid_argument for
  /// float16 gradients; under autocast, the gradients of float32 weights are float32.
  void unscale_(torch::optim::Optimizer& optimizer);

  /// Steps `optimizer` unless a gradient is infinite or NaN. It calls unscale_() first if the program has not called
  /// it. Returns what the optimizer's step() returns, which is an undefined tensor. A disabled scaler calls the
  /// optimizer's step(closure). An enabled scaler does not accept a closure.
  at::Tensor step(torch::optim::Optimizer& optimizer, torch::optim::Optimizer::LossClosure closure = nullptr);

  /// Ends an iteration, after the step() of every optimizer: increases or decreases the scale if necessary.
  void update();
  /// The same, but sets the scale to a given number from `min_scale` to the largest float32. Throws
  /// std::invalid_argument for a number out of that range. The scale may also be a tensor without dimensions that
  /// requires no gradient and is on the scaler's kind of device. Its value is copied; a number out of range is replaced
  /// by the nearest one in range, and NaN leaves the scale unchanged, because the host does not read the tensor and
  /// cannot throw.
  void update(double new_scale);
  /// The same with a tensor.
  void update(const at::Tensor& new_scale);

  /// The current scale; 1 when disabled. The host waits for the device.
  double get_scale() const;
  /// Returns the factor by which the scale grows.
  double get_growth_factor() const { return options_.growth_factor; }
  /// Sets that factor for future steps, without a check.
  void set_growth_factor(double factor) { options_.growth_factor = factor; }
  /// Returns the factor of the scale after an overflow.
  double get_backoff_factor() const { return options_.backoff_factor; }
  /// Sets that factor for future steps, without a check.
  void set_backoff_factor(double factor) { options_.backoff_factor = factor; }
  /// Returns the number of good steps in a row before the scale grows.
  int64_t get_growth_interval() const { return options_.growth_interval; }
  /// Sets that number for future steps, without a check.
  void set_growth_interval(int64_t interval) { options_.growth_interval = interval; }
  /// Returns the number of good steps since the scale last changed; 0 if disabled. The host waits for the device.
  int64_t get_growth_tracker() const;
  /// Whether the scaler is enabled: GradScalerOptions::enabled, but false for kCUDA without CUDA.
  bool is_enabled() const { return options_.enabled; }

  /// Returns the state, or nothing if disabled. Call it between update() and the next unscale_() or step(). The host
  /// waits for the device.
  std::optional<GradScalerState> state_dict() const;
  /// Loads a state; ignored if disabled. Throws std::runtime_error if it is empty, like the state of a disabled scaler,
  /// or if the scale is not a float32 number. `min_scale` is not part of the state: a scale below the minimum of this
  /// scaler is raised to it, with a warning.
  void load_state_dict(const std::optional<GradScalerState>& state);

  /// Returns the state as JSON with Python's names, or {} if disabled. CheckpointManager uses it: TrainingState{.scaler
  /// = scaler}. Throws std::logic_error in the middle of an iteration.
  std::string save() const;
  /// Loads the result of save() or of Python's state_dict(), or the bytes of an archive. Throws std::runtime_error, and
  /// changes nothing, for any other text.
  void load(const std::string& state);
  /// Writes the same state into a LibTorch archive.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Loads the state that save() has written into an archive.
  void load(torch::serialize::InputArchive& archive);

 private:
  enum class Stage { kReady, kUnscaled, kStepped };
  struct OptimizerState {
    Stage stage = Stage::kReady;
    std::vector<at::Tensor> found_infs{};  // one element per device with gradients
  };

  template <typename Error>
  [[noreturn]] void fail(const std::string& message) const {
    throw Error(rank_ + message);
  }
  void require_scale(const std::string& caller) const;
  void require_in_range(const char* name, double scale) const;
  void require_end_of_iteration() const;
  void take_state(const GradScalerState& state);
  std::vector<at::Tensor> check(torch::optim::Optimizer& optimizer, const at::Tensor& inverse_scale, bool allow_half);

  GradScalerOptions options_;
  std::string rank_;
  int64_t first_tracker_ = 0;
  at::Tensor scale_;    // float32 scalar; undefined until the first scale()
  at::Tensor tracker_;  // int32 scalar
  std::map<const torch::optim::Optimizer*, OptimizerState> optimizers_;
  std::shared_ptr<amp::detail::ScaleFloor> floor_;  // null when disabled
};

}  // namespace ddp
