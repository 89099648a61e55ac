// Tensors by device and dtype, as the foreach operators want them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddp::optim {

/// `tensors` in lists of one device and dtype each, in the order of first appearance.
std::vector<std::vector<at::Tensor>> by_device_and_dtype(const std::vector<at::Tensor>& tensors);

}  // namespace ddp::optim
