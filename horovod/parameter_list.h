// Internal: compares parameter lists and options between ranks.
#pragma once

#include <ddprun/comm/process_group.h>
#include <ddprun/horovod/horovod.h>

#include "horovod/gradient_buckets.h"

namespace ddp::horovod {

/// Throws std::runtime_error on every rank if names, shapes or dtypes differ. The message begins with `operation` and
/// describes the first difference and its rank. Collective.
void compare_parameters(const NamedTensors& parameters, const char* operation, const GroupHandle& group);

/// Does the same for an optimizer's options. `plan` contains the groups and message sizes that follow from them.
/// Collective.
void compare_options(const DistributedOptimizerOptions& options, const BucketPlan& plan, const GroupHandle& group);

}  // namespace ddp::horovod
