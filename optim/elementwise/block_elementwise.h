// Elementwise in one pass over memory: an update runs on blocks that fit into the processor's cache.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <vector>

#include "optim/elementwise/elementwise.h"

namespace ddp::optim {

/// Whether those of `tensors` that are defined, the operands of an update, have one dtype that the blocks know and one
/// dense layout on the CPU.
bool can_update_by_blocks(const std::vector<at::Tensor>& tensors);

/// Runs `update` on all blocks of `tensors`, which are changed in place; uses ATen's threads, with ATen's division of
/// the elements among them. `update` is called from several threads.
void update_by_blocks(const std::vector<at::Tensor>& tensors, const std::function<void(Elementwise&)>& update);

}  // namespace ddp::optim
