// Internal: complex tensors as backends take them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/view_as_real.h>

#include <vector>

namespace ddp::detail {

/// The same memory as pairs of real numbers, with one dimension more, since backends know no complex numbers; other
/// dtypes as they are.
inline at::Tensor real_view(const at::Tensor& tensor) {
  return tensor.is_complex() ? at::view_as_real(tensor.detach()) : tensor.detach();
}

inline std::vector<at::Tensor> real_views(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) views.push_back(real_view(tensor));
  return views;
}

}  // namespace ddp::detail
