// Communication hooks for DdpOptions::comm_hook: what replaces the all-reduce of a bucket of gradients. Reference:
// torch.distributed.algorithms.ddp_comm_hooks. Every rank needs the same hook, which the first backward compares by
// name. PowerSGD is in <ddprun/ddp/power_sgd.h>, local SGD in <ddprun/ddp/post_local_sgd.h>.
#pragma once

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

namespace ddp::hooks {

/// The mean over the ranks: what happens without a hook, for wrapping.
CommHook all_reduce(const GroupHandle& group);

/// Gradients travel as float16 (or bfloat16), half the bytes of float32: cast, divided by the number of ranks, summed
/// and cast back. Values beyond float16's range become infinite; bfloat16 keeps float32's range and loses precision.
CommHook fp16_compress(const GroupHandle& group);
CommHook bf16_compress(const GroupHandle& group);

/// Any other hook on a bucket that is cast to float16 (or bfloat16) before and back after it.
CommHook fp16_compress_wrapper(CommHook hook);
CommHook bf16_compress_wrapper(CommHook hook);

/// Leaves each rank its own gradients, undivided: to measure what the reduction costs, never to train. Reference:
/// debugging_hooks.noop_hook.
CommHook noop();

}  // namespace ddp::hooks
