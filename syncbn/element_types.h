// Internal: the mapping from the dtypes of tensors to the kernels' element types.
#pragma once

#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>

#include "syncbn/simd_kernels.h"

namespace ddp::detail {

template <typename T>
struct Element {
  using Type = T;
};
template <>
struct Element<c10::BFloat16> {
  using Type = BFloat16Bits;
};
template <>
struct Element<c10::Half> {
  using Type = HalfBits;
};

/// Calls `f(T{})` with the kernels' element type T for `type`.
template <typename F>
void for_element_type(at::ScalarType type, F f) {
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kBFloat16, at::kHalf, type, "SyncBatchNorm",
                                  [&] { f(typename Element<scalar_t>::Type{}); });
}

template <typename T>
const T* read(const at::Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* write(const at::Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace ddp::detail
