// Runs an Elementwise update in one pass over memory, on blocks that fit into the processor's cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "optim/elementwise/elementwise.h"

namespace ddp::optim {

/// Whether an update can run by blocks: the defined tensors among its operands `tensors` must have the same supported
/// dtype and the same dense layout, on the CPU.
bool can_update_by_blocks(const std::vector<at::Tensor>& tensors);

/// Runs `update` on all blocks of `tensors`, which are changed in place. It uses ATen's threads and divides the
/// elements among them as ATen does. `update` is called from several threads.
void update_by_blocks(const std::vector<at::Tensor>& tensors, const std::function<void(Elementwise&)>& update);

}  // namespace ddp::optim
