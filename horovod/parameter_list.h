// Internal: the comparison of parameter lists between ranks.
#pragma once

#include <ddprun/comm/process_group.h>
#include <ddprun/horovod/broadcast_state.h>

namespace ddp::horovod {

/// Throws std::runtime_error on every rank when names, shapes or dtypes differ, with the first difference and whose it
/// is. `operation` begins the message. Collective.
void compare_parameters(const NamedTensors& parameters, const char* operation, const GroupHandle& group);

}  // namespace ddp::horovod
