// The states of the random number generators that a region may use, to replay them in its recomputation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <utility>
#include <vector>

namespace ddp::recompute {

/// States of the default generators of the CPU and of some devices.
class RandomStates {
 public:
  /// The present states, of the CPU and of `devices`.
  static RandomStates current(const std::vector<c10::Device>& devices);
  /// Gives them to the generators.
  void apply() const;
  /// The devices beside the CPU.
  std::vector<c10::Device> devices() const;

 private:
  std::vector<std::pair<c10::Device, at::Tensor>> states_;
};

/// Gives the generators their present states back when it ends.
class RandomStatesScope {
 public:
  explicit RandomStatesScope(const RandomStates& during);
  ~RandomStatesScope();
  RandomStatesScope(const RandomStatesScope&) = delete;
  RandomStatesScope& operator=(const RandomStatesScope&) = delete;

 private:
  RandomStates previous_;
};

/// The devices beside the CPU on which `tensors` lie, each once.
std::vector<c10::Device> devices_of(const std::vector<at::Tensor>& tensors);

}  // namespace ddp::recompute
