// Dynamic loss scaling for training in half precision. Reference: torch.amp.GradScaler, whose states, checks and
// messages it has; Micikevicius et al., "Mixed Precision Training", ICLR 2018.
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
  double init_scale = 65536.0;     ///< the first scale
  double growth_factor = 2.0;      ///< above 1: multiplies the scale after `growth_interval` good steps in a row
  double backoff_factor = 0.5;     ///< below 1: multiplies the scale after a step with an infinite or NaN gradient
  int64_t growth_interval = 2000;  ///< steps
  /// The smallest scale, from 2^-126 to `init_scale`. Python has no such limit: if every step overflows, its scale is
  /// halved until it is 0, and then gradients and weights become infinite or NaN. The default is the smallest float16
  /// above 0: with a smaller scale even a gradient of 1 is 0 in half precision.
  double min_scale = 0x1p-24;
  bool enabled = true;  ///< false: every call passes through
  /// Where the losses are. As in Python, kCUDA without CUDA disables the scaler with a warning.
  c10::DeviceType device = c10::kCUDA;
  /// Names the rank in errors. Default: the rank in the launcher's variables.
  std::optional<GroupHandle> group{};
  /// All ranks of `group` skip a step if one of them must skip it. This is needed only if the ranks have different
  /// gradients (shards, or gradients that are not reduced yet); with DistributedDataParallel all ranks have the same.
  /// unscale_() is then a collective, or step() where unscale_() is not called.
  bool agree_on_found_inf = false;
};

/// A scaler's state for checkpoints, by Python's names.
struct GradScalerState {
  double scale = 0;             ///< what losses are multiplied by
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
/// With the optimizers of ddp::optim no call makes the host wait for the device; with others step() does, once, to
/// decide whether to skip. Errors have Python's texts, with the rank in front: std::runtime_error where Python raises
/// RuntimeError, std::invalid_argument for ValueError, std::logic_error for AssertionError.
class GradScaler {
 public:
  /// Throws std::logic_error for a growth factor up to 1 or a backoff factor from 1, std::invalid_argument for scales
  /// out of range and for `agree_on_found_inf` without a group.
  explicit GradScaler(const GradScalerOptions& options = {});
  GradScaler(const GradScaler&) = delete;
  GradScaler& operator=(const GradScaler&) = delete;
  GradScaler(GradScaler&&) = default;
  GradScaler& operator=(GradScaler&&) = default;

  /// `outputs` times the scale. The first call makes the scale, on that tensor's device.
  at::Tensor scale(const at::Tensor& outputs);

  /// The same for all tensors in a vector, array, tuple, map … (see <ddprun/comm/output_tensors.h>), on any
  /// devices. Throws std::invalid_argument for a type whose tensors are not known.
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

  /// Steps `optimizer` unless a gradient is infinite or NaN, after unscale_() if that was not called. Returns what the
  /// optimizer's step() returns, an undefined tensor. A disabled scaler calls the optimizer's step(closure). An enabled
  /// one does not accept a closure.
  at::Tensor step(torch::optim::Optimizer& optimizer, torch::optim::Optimizer::LossClosure closure = nullptr);

  /// Ends an iteration, after step() of every optimizer: grows or reduces the scale.
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
  /// What a scale is multiplied by when it grows.
  double get_growth_factor() const { return options_.growth_factor; }
  /// Sets that factor for future steps, without a check.
  void set_growth_factor(double factor) { options_.growth_factor = factor; }
  /// What a scale is multiplied by after an overflow.
  double get_backoff_factor() const { return options_.backoff_factor; }
  /// Sets that factor for future steps, without a check.
  void set_backoff_factor(double factor) { options_.backoff_factor = factor; }
  /// Good steps in a row before the scale grows.
  int64_t get_growth_interval() const { return options_.growth_interval; }
  /// Sets that number for future steps, without a check.
  void set_growth_interval(int64_t interval) { options_.growth_interval = interval; }
  /// Good steps since the scale last changed; 0 when disabled. The host waits for the device.
  int64_t get_growth_tracker() const;
  /// Whether it scales: GradScalerOptions::enabled, and false on kCUDA without CUDA.
  bool is_enabled() const { return options_.enabled; }

  /// The state; none when disabled. Ask between update() and the next unscale_() or step(). The host waits for the
  /// device.
  std::optional<GradScalerState> state_dict() const;
  /// Takes the state over; ignored when disabled. Throws std::runtime_error when it is empty, as a disabled scaler's
  /// is, and when the scale is no float32. `min_scale` is not part of it: a scale below this scaler's is raised to it,
  /// with a warning.
  void load_state_dict(const std::optional<GradScalerState>& state);

  /// The state as JSON under Python's names, {} when disabled; for CheckpointManager: TrainingState{.scaler = scaler}.
  /// save() throws std::logic_error in mid-iteration; load() takes over what save() or Python's state_dict() has given,
  /// or bytes of an archive, or throws std::runtime_error and changes nothing.
  std::string save() const;
  /// Takes over what save() or Python's state_dict() has given.
  void load(const std::string& state);
  /// The same in LibTorch's archives.
  void save(torch::serialize::OutputArchive& archive) const;
  /// Takes over what save() has written into an archive.
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
