// Samples that were read one by one, as a batch. Reference: torch.utils.data.default_collate.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <vector>

#include <ddprun/data/batch.h>

namespace ddp::detail {

/// A number is a tensor of no dimensions: int64 for integers (class indices), else float32.
template <typename Value>
at::Tensor as_tensor(const Value& value) {
  if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
    return at::scalar_tensor(static_cast<int64_t>(value), at::kLong);
  } else if constexpr (std::is_floating_point_v<Value>) {
    return at::scalar_tensor(static_cast<double>(value), at::kFloat);
  } else {
    return value;
  }
}

/// A sample's data and target: of `.data` and `.target` (LibTorch's Example<> too), of a pair, or of data alone, whose
/// target is undefined.
template <typename Sample>
Batch parts_of(const Sample& sample) {
  if constexpr (
      requires { sample.target.defined(); } || requires { as_tensor(sample.target) + sample.data; }) {
    return {.data = as_tensor(sample.data), .target = as_tensor(sample.target)};
  } else if constexpr (requires { sample.data.defined(); }) {
    return {.data = sample.data, .target = {}};
  } else if constexpr (requires { std::tuple_size<Sample>::value; }) {
    static_assert(std::tuple_size_v<Sample> == 2, "a sample is data and target");
    return {.data = as_tensor(std::get<0>(sample)), .target = as_tensor(std::get<1>(sample))};
  } else {
    return {.data = as_tensor(sample), .target = {}};
  }
}

/// The samples' data and targets stacked along a new first dimension.
inline Batch stacked(const std::vector<Batch>& samples) {
  std::vector<at::Tensor> data, target;
  for (const auto& sample : samples) {
    data.push_back(sample.data);
    if (sample.target.defined()) target.push_back(sample.target);
  }
  return {.data = at::stack(data), .target = target.empty() ? at::Tensor() : at::stack(target)};
}

}  // namespace ddp::detail
