// The states of the random number generators that a region may use. They are replayed in its second run.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace ddp::recompute {

/// The states of the default generators of the CPU and of some devices.
class RandomStates {
 public:
  /// Returns the current states for the CPU and `devices`.
  static RandomStates current(const std::vector<c10::Device>& devices);
  /// Sets the generators to these states.
  void apply() const;
  /// Returns the devices other than the CPU.
  std::vector<c10::Device> devices() const;

 private:
  std::vector<std::pair<c10::Device, at::Tensor>> states_;
};

/// The destructor restores the states that the generators had at construction.
class RandomStatesScope {
 public:
  explicit RandomStatesScope(const RandomStates& during);
  ~RandomStatesScope();
  RandomStatesScope(const RandomStatesScope&) = delete;
  RandomStatesScope& operator=(const RandomStatesScope&) = delete;

 private:
  RandomStates previous_;
};

/// Returns the devices other than the CPU on which `tensors` are, each once.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors);

}  // namespace ddp::recompute
