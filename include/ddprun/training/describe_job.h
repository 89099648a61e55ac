// The job in one line, for the beginning of a run's output.
#pragma once

#include <cstdint>
#include <string>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// "2 ranks × batch 16 × accumulation 1 = global batch 32, device cpu, backend gloo". `batch_size` is a rank's samples
/// per backward pass, `accumulate` the backward passes per optimizer step. Not a collective.
std::string describe_job(const GroupHandle& group, int64_t batch_size, int64_t accumulate = 1);

}  // namespace ddp
