// Groups tensors by device and dtype, as the foreach operators require.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddp::optim {

/// Splits `tensors` into lists of one device and dtype each, in the order of first appearance.
std::vector<std::vector<at::Tensor>> by_device_and_dtype(const std::vector<at::Tensor>& tensors);

}  // namespace ddp::optim
