// One rank's values on every rank. Who must call, what is accepted and what is thrown: as for the reductions.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include <ddprun/comm/collective_options.h>
#include <ddprun/comm/pending.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Overwrites `tensor` on every rank with rank `root`'s values.
void broadcast(at::Tensor tensor, int root, const GroupHandle& group, const CollectiveOptions& options = {});
Pending<void> broadcast_async(at::Tensor tensor, int root, const GroupHandle& group,
                              const CollectiveOptions& options = {});

/// Overwrites all `tensors` with rank `root`'s, packed into messages of at most `buffer_bytes`. Non-contiguous ones are
/// allowed. All ranks need the same list.
void broadcast_coalesced(const std::vector<at::Tensor>& tensors, int root, const GroupHandle& group,
                         int64_t buffer_bytes = int64_t{250} << 20);

}  // namespace ddp
