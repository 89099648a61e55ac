#include "ddprun/fsdp/sharded_unit.h"

#include <ddprun/detail/fsdp/fully_shard_core.h>

#include "fsdp/sharded_model.h"

namespace ddp {
namespace {

std::vector<int> numbers_of(const fsdp::ShardedModel& model, const std::vector<std::string>& modules) {
  std::vector<int> numbers;
  for (const std::string& module : modules) numbers.push_back(model.unit_named(module));
  return numbers;
}

}  // namespace

void ShardedUnit::set_reshard_after_forward(bool enabled) {
  core_->model().traits(number_).reshards_after_forward = enabled;
}

void ShardedUnit::set_unshard_in_backward(bool enabled) {
  core_->model().traits(number_).unshards_in_backward = enabled;
}

void ShardedUnit::set_modules_to_forward_prefetch(const std::vector<std::string>& modules) {
  core_->model().traits(number_).forward_prefetch = numbers_of(core_->model(), modules);
}

void ShardedUnit::set_modules_to_backward_prefetch(const std::vector<std::string>& modules) {
  core_->model().traits(number_).backward_prefetch = numbers_of(core_->model(), modules);
}

void ShardedUnit::set_gradient_divide_factor(double factor) {
  core_->model().set_divide_factor(number_, factor);
}

void ShardedUnit::set_force_sum_reduction_for_comms(bool enabled) {
  core_->model().unit(number_).gradients().settings().only_sums = enabled;
}

void ShardedUnit::set_reduce_scatter_unused_params(bool enabled) {
  core_->model().unit(number_).gradients().settings().reduces_unused = enabled;
}

void ShardedUnit::unshard(bool async_op) {
  core_->model().unshard(number_, async_op);
}

void ShardedUnit::reshard() {
  core_->model().unit(number_).free();
}

}  // namespace ddp
