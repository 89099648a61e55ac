// Internal: many tensors as few, so that one message carries a whole list.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddp::detail {

/// Tensors of one dtype and device, and their values in one row.
struct TensorPack {
  at::Tensor flat{};                  ///< (n); the tensor's own memory when there is only one and it is contiguous
  std::vector<at::Tensor> tensors{};  ///< in the order of the list

  /// Writes the values in `flat` back into the tensors.
  void unpack() const;
};

/// One pack per dtype and device, in the order of first appearance. Records no gradients.
std::vector<TensorPack> pack_by_dtype(const std::vector<at::Tensor>& tensors);

}  // namespace ddp::detail
