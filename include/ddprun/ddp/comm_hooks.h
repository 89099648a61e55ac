// Communication hooks for DdpOptions::comm_hook: what replaces the all-reduce of a bucket of gradients. Reference:
// torch.distributed.algorithms.ddp_comm_hooks. Every rank needs the same hook, which the first backward compares by
// name.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

namespace ddp::hooks {

/// The mean over the ranks: what happens without a hook, for wrapping.
CommHook all_reduce(const GroupHandle& group);

/// Gradients travel as float16 (or bfloat16), half the bytes of float32: cast, divided by the number of ranks, summed
/// and cast back. Values beyond float16's range become infinite; bfloat16 keeps float32's range and loses precision.
CommHook fp16_compress(const GroupHandle& group);
/// fp16_compress() with bfloat16.
CommHook bf16_compress(const GroupHandle& group);

/// Any other hook on a bucket that is cast to float16 (or bfloat16) before and back after it.
CommHook fp16_compress_wrapper(CommHook hook);
/// fp16_compress_wrapper() with bfloat16.
CommHook bf16_compress_wrapper(CommHook hook);

/// Leaves each rank its own gradients, undivided: to measure what the reduction costs, never to train. Reference:
/// debugging_hooks.noop_hook.
CommHook noop();

}  // namespace ddp::hooks

namespace ddp {

/// Settings of hooks::power_sgd(); defaults are Python's.
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;  ///< width of the thin matrices: more is closer to the gradient, and slower
  int64_t start_iteration = 1000;         ///< plain all-reduce before; at least 2 with error feedback or warm start
  double min_compression_rate = 2;        ///< what saves less than this factor is not compressed
  bool use_error_feedback = true;         ///< what compression lost is added to the next step's gradient
  bool warm_start = true;                 ///< begin with the last step's matrices instead of random ones
  double orthogonalization_epsilon = 0;   ///< added to norms, against division by zero for gradients that vanish
  uint32_t random_seed = 0;               ///< the same on every rank
  bool batch_tensors_with_same_shape = false;  ///< compress gradients of one shape as one batch
};

/// What PowerSGD keeps from step to step, one per wrapped model. Held by the hook; keep it to read the statistics.
class PowerSgdState;

/// How much was saved so far, in numbers of elements.
struct PowerSgdStatistics {
  int64_t before = 0;  ///< of the gradients
  int64_t after = 0;   ///< of what was sent
  /// before / after; 0 before the first compressed step.
  double rate() const { return after == 0 ? 0 : static_cast<double>(before) / static_cast<double>(after); }
};

/// The state of one wrapped model's hook. Throws std::invalid_argument for a rank below 1 or a start_iteration that is
/// too early.
std::shared_ptr<PowerSgdState> make_power_sgd_state(const GroupHandle& group, const PowerSgdOptions& options);
/// How much the hook with this state has saved so far on this rank.
PowerSgdStatistics statistics(const PowerSgdState& state);

namespace hooks {

/// Three all-reduces per bucket, in the backward thread: on the CPU they don't overlap with backward, since gloo has no
/// order for collectives that are started from callbacks; on CUDA they run on a stream of their own.
CommHook power_sgd(std::shared_ptr<PowerSgdState> state);

}  // namespace hooks

/// Settings of hooks::post_local_sgd().
struct PostLocalSgdOptions {
  /// Steps with gradients averaged over all ranks before local SGD begins.
  int64_t start_iteration = 0;
  /// After that: average gradients over `subgroup`; false: not at all.
  bool post_local_gradient_allreduce = true;
  /// The ranks that keep averaging, usually those of one node. Required with post_local_gradient_allreduce.
  std::optional<GroupHandle> subgroup{};
};

namespace hooks {

/// Use together with a PeriodicModelAverager whose warmup_steps is start_iteration. Throws std::invalid_argument for a
/// missing subgroup.
CommHook post_local_sgd(const GroupHandle& group, const PostLocalSgdOptions& options);

}  // namespace hooks

/// Averages parameters over the ranks every `period` steps. Call average_parameters() after each optimizer step, on all
/// ranks.
class PeriodicModelAverager {
 public:
  /// Throws std::invalid_argument for a period below 1 or negative warmup_steps.
  PeriodicModelAverager(GroupHandle group, int64_t period, int64_t warmup_steps = 0);

  /// Averages those of `parameters` that have a gradient, if it is time: at step warmup_steps and every `period` after
  /// it, counting from 0. All in one all-reduce; parameters of different dtypes are promoted to the widest meanwhile.
  void average_parameters(const std::vector<at::Tensor>& parameters);

 private:
  GroupHandle group_;
  int64_t period_;
  int64_t warmup_steps_;
  int64_t step_ = 0;
};

}  // namespace ddp
