// Operators whose results a region keeps (RecomputeOptions::must_save). Autograd's part of them runs again, what they
// compute does not.
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

/// The results of some operators in the first run of a region.
class KeptOperators {
 public:
  /// Of those of these names, as RecomputeOptions::must_save has them, which LibTorch then tells the thread's
  /// SavedTensorMode of. Throws std::invalid_argument for one whose results cannot be kept.
  explicit KeptOperators(const std::vector<std::string>& names);

  bool has(const c10::OperatorHandle& op) const;
  /// Looks at the results of a call, which are on `stack`, and keeps them where has(op); `devices`: those whose random
  /// numbers are replayed, or nullptr.
  void note(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const std::vector<c10::Device>* devices);
  /// Replaces the arguments of call number `index` on `stack` by its results. Throws RecomputeError when that was a
  /// call of another operator, or when a result was changed in place.
  void put(size_t index, const c10::OperatorHandle& op, torch::jit::Stack& stack) const;
  void clear() { calls_.clear(); }

 private:
  struct Call {
    c10::OperatorName name;
    std::vector<c10::IValue> results{};
    std::vector<uint32_t> versions{};                       // of the tensors in them
    std::vector<std::pair<at::Tensor, uint32_t>> others{};  // on the same memory, and their versions
    std::optional<RandomStates> random_states{};            // after the call
  };

  void keep(const c10::OperatorHandle& op, const torch::jit::Stack& stack, const std::vector<c10::Device>* devices);
  void watch(const at::Tensor& tensor);
  [[noreturn]] static void refuse_changed(const std::string& name);

  std::vector<c10::OperatorName> names_;
  std::vector<Call> calls_;
};

}  // namespace ddp::recompute
