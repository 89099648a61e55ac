// Communication hooks for DdpOptions::comm_hook: functions that replace the all-reduce of a bucket of gradients.
// Reference: torch.distributed.algorithms.ddp_comm_hooks. Every rank needs the same hook; the first backward compares
// the hooks' names.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

namespace ddp::hooks {

/// The mean over the ranks, as without a hook; for use inside other hooks.
CommHook all_reduce(const GroupHandle& group);

/// Sends gradients as float16 (or bfloat16), which has half the bytes of float32: they are cast, divided by the number
/// of ranks, summed and cast back. Values beyond float16's range become infinite; bfloat16 keeps float32's range and
/// loses precision.
CommHook fp16_compress(const GroupHandle& group);
/// fp16_compress() with bfloat16.
CommHook bf16_compress(const GroupHandle& group);

/// Casts the bucket to float16 (or bfloat16), runs another hook on it, and casts the result back.
CommHook fp16_compress_wrapper(CommHook hook);
/// fp16_compress_wrapper() with bfloat16.
CommHook bf16_compress_wrapper(CommHook hook);

/// Each rank keeps its own gradients, undivided. Use it to measure the cost of the reduction, never for training.
/// Reference: debugging_hooks.noop_hook.
CommHook noop();

}  // namespace ddp::hooks

namespace ddp {

/// Settings of hooks::power_sgd(); defaults are Python's.
struct PowerSgdOptions {
  int64_t matrix_approximation_rank = 1;  ///< width of the thin matrices: more is closer to the gradient, and slower
  int64_t start_iteration = 1000;         ///< plain all-reduce before; at least 2 with error feedback or warm start
  double min_compression_rate = 2;        ///< gradients that compression shrinks by less than this factor are not
                                          ///< compressed
  bool use_error_feedback = true;         ///< whether the error of the compression is added to the next step's gradient
  bool warm_start = true;                 ///< begin with the last step's matrices instead of random ones
  double orthogonalization_epsilon = 0;   ///< added to norms, against division by zero for gradients that vanish
  uint32_t random_seed = 0;               ///< the same on every rank
  bool batch_tensors_with_same_shape = false;  ///< compress gradients of one shape as one batch
};

/// The state that PowerSGD keeps from step to step, one per wrapped model. The hook holds it; keep a pointer to read
/// the statistics.
class PowerSgdState;

/// How much communication was saved so far, in elements.
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
  /// Whether gradients are averaged over `subgroup` after that; if not, they are not averaged.
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

  /// Averages those `parameters` that have a gradient, at step warmup_steps and then every `period` steps, counted from
  /// 0; does nothing at other steps. It uses one all-reduce; for that, parameters of different dtypes are promoted to
  /// the widest one.
  void average_parameters(const std::vector<at::Tensor>& parameters);

 private:
  GroupHandle group_;
  int64_t period_;
  int64_t warmup_steps_;
  int64_t step_ = 0;
};

}  // namespace ddp
