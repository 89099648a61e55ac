// Collectives between devices with NCCL's manners: each communicator works on a stream of its own, its calls only
// queue, wait() makes the current stream wait and not the host, calls that need not be waited for return no Work, and
// what fails is said by a later call. Ranks may be threads or processes: the bytes go through the backend "shm".
#pragma once

#include "comm/backends/group_plan.h"

namespace ddp::test::device {

/// All ranks of the group call it.
c10::intrusive_ptr<c10d::Backend> make_communicator(const detail::GroupPlan& plan,
                                                    const c10::intrusive_ptr<c10d::Store>& store);

}  // namespace ddp::test::device
