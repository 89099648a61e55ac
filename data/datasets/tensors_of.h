// Internal: tensors that own what a reader gave.
#pragma once

#include <ATen/ops/from_blob.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace ddp {

/// A tensor of this shape on the vector's memory, which it keeps.
template <typename T>
at::Tensor tensor_of(std::vector<T> values, at::IntArrayRef shape) {
  const auto owner = std::make_shared<std::vector<T>>(std::move(values));
  return at::from_blob(
      owner->data(), shape, [owner](void*) {}, at::TensorOptions().dtype(c10::CppTypeToScalarType<T>::value));
}

}  // namespace ddp
