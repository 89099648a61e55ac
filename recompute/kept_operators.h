// Operators whose results a region stores (RecomputeOptions::must_save). In the second run, autograd's part of these
// operators runs again, but their computation does not.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/operator_name.h>
#include <ATen/core/stack.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "recompute/random_states.h"

namespace c10 {
class OperatorHandle;
}

namespace ddp::recompute {

/// Stores the results of the chosen operators in the first run of a region.
class KeptOperators {
 public:
  /// `names` are the operators, in the format of RecomputeOptions::must_save. From now on, calls of these operators are
  /// reported to the SavedTensorMode of the thread. Throws std::invalid_argument for an operator whose results cannot
  /// be stored.
  explicit KeptOperators(const std::vector<std::string>& names);

  bool has(const c10::OperatorHandle& op) const;
  /// Called after an operator, with its results on `stack`. Stores them if has(op). `devices` are the devices whose
  /// random numbers are replayed, or nullptr.
  void note(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const std::vector<c10::Device>* devices);
  /// Replaces the arguments on `stack` by the stored results of call number `index`. Throws RecomputeError if that call
  /// was of another operator, or if a result was changed in place.
  void put(size_t index, const c10::OperatorHandle& op, torch::jit::Stack& stack) const;
  void clear() { calls_.clear(); }

 private:
  struct Call {
    c10::OperatorName name;
    std::vector<c10::IValue> results{};
    std::vector<uint32_t> versions{};                       // of the tensors in `results`
    std::vector<std::pair<at::Tensor, uint32_t>> others{};  // other tensors on the same memory, and their versions
    std::optional<RandomStates> random_states{};            // after the call
  };

  void keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const std::vector<c10::Device>* devices);
  void watch(const at::Tensor& tensor);
  [[noreturn]] static void refuse_changed(const std::string& name);

  std::vector<c10::OperatorName> names_;
  std::vector<Call> calls_;
};

}  // namespace ddp::recompute
