// Autocast as a scope: inside it, LibTorch computes matrix products and convolutions in 16 bits, and sums, norms and
// losses in 32 bits. Reference: torch.autocast.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <utility>

namespace ddp {

/// Settings of an Autocast, all optional.
struct AutocastOptions {
  /// c10::kHalf or c10::kBFloat16. The default is the dtype of the enclosing Autocast, or else LibTorch's default for
  /// the device (half on CUDA, bfloat16 on the CPU).
  std::optional<c10::ScalarType> dtype{};
  bool enabled = true;  ///< false: full precision in this scope, even inside another Autocast
  /// Whether the 16-bit copy of a weight is cached for its next use in the scope. The default is the setting of the
  /// enclosing Autocast, or else true.
  std::optional<bool> cache{};
};

/// While this object exists, the calling thread's forward computations on one kind of device run in mixed precision.
/// Its destructor restores the previous settings, also after an exception. Scopes nest; destroy them in reverse order,
/// on their thread.
///
///     torch::Tensor loss;
///     {
///       ddp::Autocast autocast(group.device().type());
///       loss = cross_entropy(model(x), y);
///     }
///     scaler.scale(loss).backward();     // outside: backward uses the types that forward did
///
/// Weights must not change inside a scope, so call the optimizer's step() outside: 16-bit copies of the weights are
/// cached until the outermost scope ends. Throws std::runtime_error for a kind of device without autocast. As in
/// Python, the scope is disabled with a warning for a dtype that the CPU's autocast does not support, and for CUDA on a
/// machine without CUDA.
class Autocast {
 public:
  /// Begins the scope for computations on this kind of device.
  explicit Autocast(c10::DeviceType device, const AutocastOptions& options = {});
  /// The same for the device type of `device`.
  explicit Autocast(c10::Device device, const AutocastOptions& options = {}) : Autocast(device.type(), options) {}
  ~Autocast();
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  c10::DeviceType device_;
  bool previous_enabled_;
  c10::ScalarType previous_dtype_;
  bool previous_cache_;
};

/// The autocast settings of a thread, for use in another thread. The settings are thread-local: at::parallel_for and
/// std::thread do not pass them on (at::launch and backward do).
class AutocastState {
 public:
  /// The calling thread's settings for CPU and CUDA.
  static AutocastState current();
  /// Applies these settings to the calling thread.
  void apply() const;

 private:
  struct Setting {
    bool enabled = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
  };
  std::array<Setting, 2> settings_{};  // CPU, CUDA
  bool cache_ = true;
};

/// During its lifetime, the calling thread has the settings of `state`.
class AutocastStateScope {
 public:
  /// Applies `state` to the calling thread.
  explicit AutocastStateScope(const AutocastState& state);
  ~AutocastStateScope();
  AutocastStateScope(const AutocastStateScope&) = delete;
  AutocastStateScope& operator=(const AutocastStateScope&) = delete;

 private:
  AutocastState previous_;
};

/// Wraps `function` so that it runs with the autocast settings that the calling thread has now, in any thread:
///
///     std::jthread worker(ddp::with_autocast([&] { output = branch(x); }));
template <typename Function>
auto with_autocast(Function&& function) {
  return [state = AutocastState::current(),
          inner = std::forward<Function>(function)](auto&&... arguments) mutable -> decltype(auto) {
    const AutocastStateScope scope(state);
    return inner(std::forward<decltype(arguments)>(arguments)...);
  };
}

}  // namespace ddp

namespace ddp::amp {

/// Enables autocast during its lifetime at level O1; does nothing at the other levels.
class CastScope {
 public:
  /// Begins autocast to `dtype` for this kind of device if `wanted`.
  CastScope(bool wanted, c10::DeviceType device, c10::ScalarType dtype) {
    if (wanted) autocast_.emplace(device, AutocastOptions{.dtype = dtype});
  }
  CastScope(const CastScope&) = delete;
  CastScope& operator=(const CastScope&) = delete;

 private:
  std::optional<Autocast> autocast_;
};

}  // namespace ddp::amp
