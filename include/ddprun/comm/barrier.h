// The meeting point of all ranks.
#pragma once

#include <ddprun/comm/collective_options.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

/// Returns when every rank of the group has called it. Blocks the calling thread; with NCCL alone it blocks until the
/// GPU has reached it. On timeout (gloo) throws std::runtime_error that names the ranks which have not come.
void barrier(const GroupHandle& group, const CollectiveOptions& options = {});

}  // namespace ddp
