// What an operator will return, found out before its inputs have been computed: the CPU's kernel is run once on zeros
// (or ones) of the same shapes, and the answer kept.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <vector>

namespace ddp::test::device {

struct Shape {
  bool is_defined = false;
  std::vector<int64_t> sizes{};
  std::vector<int64_t> strides{};
  at::ScalarType dtype = at::kFloat;
};

/// Of each value that the operator returns, the shapes of its tensors: one for a tensor, any number for a list.
using Shapes = std::vector<std::vector<Shape>>;

/// For arguments as the operator's kernels will see them.
Shapes shapes_of_results(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments);

/// Of one written argument that has no elements yet: its shape afterwards.
Shape shape_of_output(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, size_t index);

}  // namespace ddp::test::device
