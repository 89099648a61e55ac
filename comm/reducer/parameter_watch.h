// Internal: notices that parameters are changed while a backward runs, as an optimizer that steps in a hook does.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace ddp::detail {

/// Compares version counters, and on the CPU one number of some parameters: LibTorch's optimizers step past the
/// counters.
class ParameterWatch {
 public:
  void begin(const std::vector<at::Tensor>& parameters);
  /// The first of them that has changed since.
  std::optional<size_t> changed(const std::vector<at::Tensor>& parameters) const;

 private:
  std::vector<uint32_t> versions_;
  std::vector<uint64_t> numbers_;
};

}  // namespace ddp::detail
