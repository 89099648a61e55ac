// Local SGD after a warm-up: gradients are averaged over all ranks at first, later over a small group or not at all,
// and the parameters are averaged now and then. Reference: Lin et al., "Don't Use Large Mini-Batches, Use Local SGD",
// ICLR 2020; torch.distributed's post_localSGD_hook and PeriodicModelAverager.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <vector>

#include <ddprun/comm/gradient_bucket.h>
#include <ddprun/comm/process_group.h>

namespace ddp {

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
