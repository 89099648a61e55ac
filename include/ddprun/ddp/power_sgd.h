// PowerSGD: gradients travel as products of two thin matrices. Reference: Vogels, Karimireddy, Jaggi, "PowerSGD",
// NeurIPS 2019; torch.distributed's powerSGD_hook, whose arithmetic and order of operations this is.
#pragma once

#include <cstdint>
#include <memory>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

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
  bool batch_tensors_with_same_shape = false;
};

/// What PowerSGD keeps from step to step, one per wrapped model. Held by the hook; keep it to read the statistics.
class PowerSgdState;

/// How much was saved so far, in numbers of elements.
struct PowerSgdStatistics {
  int64_t before = 0;
  int64_t after = 0;
  double rate() const { return after == 0 ? 0 : static_cast<double>(before) / static_cast<double>(after); }
};

/// Throws std::invalid_argument for a rank below 1 or a start_iteration that is too early.
std::shared_ptr<PowerSgdState> make_power_sgd_state(const GroupHandle& group, const PowerSgdOptions& options);
PowerSgdStatistics statistics(const PowerSgdState& state);

namespace hooks {

/// Three all-reduces per bucket, in the backward thread: on the CPU they don't overlap with backward, since gloo has no
/// order for collectives that are started from callbacks; on CUDA they run on a stream of their own.
CommHook power_sgd(std::shared_ptr<PowerSgdState> state);

}  // namespace hooks
}  // namespace ddp
