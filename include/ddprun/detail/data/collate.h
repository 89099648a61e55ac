// Samples that were read one by one, or by several datasets, as a batch. Reference: torch.utils.data.default_collate.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>

#include <cstddef>
#include <cstdint>
#include <sstream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
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

/// The data and the targets of the samples, each combined by `stack`. Throws std::invalid_argument if only some samples
/// have a target.
template <typename Stack>
Batch stacked(const std::vector<Batch>& samples, const Stack& stack) {
  std::vector<at::Tensor> data, target;
  for (const auto& sample : samples) {
    data.push_back(sample.data);
    if (sample.target.defined()) target.push_back(sample.target);
  }
  if (!target.empty() && target.size() != data.size()) {
    throw std::invalid_argument("a batch: " + std::to_string(target.size()) + " of its " + std::to_string(data.size()) +
                                " samples have a target; expected all or none");
  }
  return {.data = stack(data), .target = target.empty() ? at::Tensor() : stack(target)};
}

/// The samples' data and targets stacked along a new first dimension.
inline Batch stacked(const std::vector<Batch>& samples) {
  return stacked(samples, [](const std::vector<at::Tensor>& parts) { return at::stack(parts); });
}

/// Batches of several datasets as one of `count` samples: those of parts[i] go to the places rows[i]. Tensors are
/// copied once. Throws std::invalid_argument, naming the datasets, where their samples differ in shape or dtype.
inline at::Tensor merged(const std::vector<at::Tensor>& parts, const std::vector<std::vector<int64_t>>& rows,
                         int64_t count) {
  const at::Tensor& first = parts.front();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].defined() == first.defined() &&
        (!first.defined() ||
         (parts[i].dtype() == first.dtype() && parts[i].sizes().slice(1) == first.sizes().slice(1)))) {
      continue;
    }
    std::ostringstream text;
    text << "ConcatDataset: samples of one batch differ: ";
    const auto describe = [&text](const at::Tensor& part) {
      if (!part.defined()) return void(text << "nothing");
      text << part.dtype() << ' ' << part.sizes().slice(1);
    };
    describe(first);
    text << " and ";
    describe(parts[i]);
    text << "; bring them to one shape and dtype first";
    throw std::invalid_argument(text.str());
  }
  if (!first.defined()) return {};
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes.at(0) = count;
  at::Tensor whole = at::empty(sizes, first.options());
  for (size_t i = 0; i < parts.size(); ++i) {
    const at::Tensor places = at::tensor(rows[i], at::kLong).to(first.device());
    whole.index_copy_(0, places, parts[i]);
  }
  return whole;
}

inline Batch merged(const std::vector<Batch>& parts, const std::vector<std::vector<int64_t>>& rows, int64_t count) {
  std::vector<at::Tensor> data, target;
  for (const Batch& part : parts) {
    data.push_back(part.data);
    target.push_back(part.target);
  }
  return {.data = merged(data, rows, count), .target = merged(target, rows, count)};
}

template <typename Value>
std::vector<Value> merged(std::vector<std::vector<Value>>& parts, const std::vector<std::vector<int64_t>>& rows,
                          int64_t count) {
  std::vector<Value> whole(static_cast<size_t>(count));
  for (size_t i = 0; i < parts.size(); ++i) {
    for (size_t k = 0; k < rows[i].size(); ++k) whole[static_cast<size_t>(rows[i][k])] = std::move(parts[i].at(k));
  }
  return whole;
}

}  // namespace ddp::detail
