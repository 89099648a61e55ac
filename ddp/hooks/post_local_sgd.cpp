#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>

#include <memory>
#include <stdexcept>
#include <utility>

#include <ddprun/comm/collectives.h>

#include "comm/core/graph_capture.h"
#include "ddprun/ddp/comm_hooks.h"

namespace ddp {
namespace hooks {

CommHook post_local_sgd(const GroupHandle& group, const PostLocalSgdOptions& options) {
  if (options.start_iteration < 0)
    throw std::invalid_argument(who(group.info()) + ": post_local_sgd: start_iteration must not be negative");
  if (options.post_local_gradient_allreduce && !options.subgroup) {
    throw std::invalid_argument(who(group.info()) +
                                ": post_local_sgd: post_local_gradient_allreduce needs a subgroup, for example of this "
                                "node's ranks");
  }
  const CommHook globally = all_reduce(group);
  const CommHook locally = options.post_local_gradient_allreduce ? all_reduce(*options.subgroup) : CommHook();
  const auto iteration = std::make_shared<int64_t>(0);
  return named_hook("post_local_sgd", [globally, locally, iteration, start = options.start_iteration,
                                       rank = who(group.info())](GradientBucket& bucket) {
    if (*iteration >= start) return locally ? locally(bucket) : completed_future(bucket.buffer());
    detail::refuse_capture(rank + ": post_local_sgd", "replays would never reach start_iteration. Capture after it");
    if (bucket.is_last()) ++*iteration;
    return globally(bucket);
  });
}

}  // namespace hooks

PeriodicModelAverager::PeriodicModelAverager(GroupHandle group, int64_t period, int64_t warmup_steps)
    : group_(std::move(group)), period_(period), warmup_steps_(warmup_steps) {
  if (period < 1 || warmup_steps < 0) {
    throw std::invalid_argument(who(group_.info()) + ": PeriodicModelAverager: expected period >= 1 and warmup_steps " +
                                ">= 0, got " + std::to_string(period) + " and " + std::to_string(warmup_steps));
  }
}

void PeriodicModelAverager::average_parameters(const std::vector<at::Tensor>& parameters) {
  detail::refuse_capture(who(group_.info()) + ": PeriodicModelAverager",
                         "it counts steps on the host. Call it between replays");
  const int64_t step = step_++;
  if (step < warmup_steps_ || (step - warmup_steps_) % period_ != 0) return;
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> averaged;
  std::vector<at::Tensor> flat_parts;
  for (const at::Tensor& parameter : parameters) {
    if (!parameter.grad().defined()) continue;
    averaged.push_back(parameter);
    flat_parts.push_back(parameter.detach().reshape({-1}));
  }
  if (averaged.empty()) return;
  const at::Tensor flat = at::cat(flat_parts);
  flat.div_(group_.size());
  all_reduce(flat, group_);
  int64_t offset = 0;
  for (const at::Tensor& parameter : averaged) {
    parameter.copy_(flat.narrow(0, offset, parameter.numel()).view(parameter.sizes()));
    offset += parameter.numel();
  }
}

}  // namespace ddp
