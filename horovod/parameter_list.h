// Internal: the comparison of parameter lists and options between ranks.
#pragma once

#include <ddprun/comm/process_group.h>
#include <ddprun/horovod/horovod.h>

#include "horovod/gradient_buckets.h"

namespace ddp::horovod {

/// Throws std::runtime_error on every rank when names, shapes or dtypes differ, with the first difference and whose it
/// is. `operation` begins the message. Collective.
void compare_parameters(const NamedTensors& parameters, const char* operation, const GroupHandle& group);

/// The same for an optimizer's options; `plan` has what follows from them for groups and sizes of messages. Collective.
void compare_options(const DistributedOptimizerOptions& options, const BucketPlan& plan, const GroupHandle& group);

}  // namespace ddp::horovod
