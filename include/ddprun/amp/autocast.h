// Autocast as a scope: inside it LibTorch runs matrix products and convolutions in 16 bits, and sums, norms and losses
// in 32. Reference: torch.autocast.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <utility>

namespace ddp {

/// Settings of an Autocast, all optional.
struct AutocastOptions {
  /// c10::kHalf or c10::kBFloat16. Default: LibTorch's for the device, half on CUDA and bfloat16 on the CPU, or that of
  /// the Autocast around this one.
  std::optional<c10::ScalarType> dtype{};
  bool enabled = true;  ///< false: full precision inside, also within another Autocast
  /// Keep the 16-bit copy of a weight for its next use in the scope. Default: as the Autocast around this one, else
  /// true.
  std::optional<bool> cache{};
};

/// While it lives, the calling thread's forward computations on one kind of device run in mixed precision; what was set
/// before comes back with its end, also by an exception. Scopes nest; destroy them in reverse order, on their thread.
///
///     torch::Tensor loss;
///     {
///       ddp::Autocast autocast(group.device().type());
///       loss = cross_entropy(model(x), y);
///     }
///     scaler.scale(loss).backward();     // outside: backward uses the types that forward did
///
/// Weights must not change inside a scope (the optimizer steps outside), for their copies are kept until the outermost
/// one ends. Throws std::runtime_error for a kind of device without autocast. As in Python it is disabled, with a
/// warning, for a dtype that the CPU's autocast cannot use, and for CUDA on a machine without it.
class Autocast {
 public:
  /// Begins the scope for computations on this kind of device.
  explicit Autocast(c10::DeviceType device, const AutocastOptions& options = {});
  /// The same for the kind of `device`.
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

/// The autocast settings of a thread, to be taken to another one: they are thread-local, and at::parallel_for and
/// std::thread do not pass them on (at::launch and backward do).
class AutocastState {
 public:
  /// The calling thread's, for CPU and CUDA.
  static AutocastState current();
  /// Makes them the calling thread's.
  void apply() const;

 private:
  struct Setting {
    bool enabled = false;
    c10::ScalarType dtype = c10::ScalarType::Undefined;
  };
  std::array<Setting, 2> settings_{};  // CPU, CUDA
  bool cache_ = true;
};

/// While it lives, the calling thread has the settings of `state`.
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

/// `function`, but it runs with the autocast settings that the calling thread has now, whichever thread calls it:
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

/// While it lives: autocast at level O1, nothing at the others.
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
