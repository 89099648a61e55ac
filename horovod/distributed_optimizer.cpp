#include <ATen/core/grad_mode.h>
#include <c10/util/Exception.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/optimizer.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <ddprun/detail/comm/gradient_hook.h>
#include <ddprun/detail/comm/shard_group.h>

#include "ddprun/horovod/horovod.h"
#include "horovod/gradient_buckets.h"
#include "horovod/parameter_list.h"

namespace ddp::horovod {
namespace {

[[noreturn]] void refuse(const GroupHandle& group, const std::string& why) {
  throw std::invalid_argument(who(group.info()) + ": DistributedOptimizer: " + why);
}

std::optional<at::ScalarType> wire_dtype(Compression compression) {
  if (compression == Compression::kFp16) return at::kHalf;
  if (compression == Compression::kBf16) return at::kBFloat16;
  return std::nullopt;
}

void check(torch::optim::Optimizer& inner, const GroupHandle& group, const DistributedOptimizerOptions& options) {
  if (dynamic_cast<torch::optim::LBFGS*>(&inner) != nullptr) {
    refuse(group, "LBFGS evaluates the model several times in a step, which cannot be distributed this way");
  }
  if (options.backward_passes_per_step < 1) {
    refuse(group,
           "backward_passes_per_step=" + std::to_string(options.backward_passes_per_step) + ": expected at least 1");
  }
  if (options.op != Op::kAverage && options.op != Op::kSum && options.op != Op::kAdasum) {
    refuse(group, "op must be kAverage, kSum or kAdasum");
  }
  if (options.gradient_predivide_factor != 1.0 && options.op != Op::kAverage) {
    refuse(group, "gradient_predivide_factor needs op kAverage");
  }
  if (!(options.gradient_predivide_factor > 0) || !std::isfinite(options.gradient_predivide_factor)) {
    refuse(group, "gradient_predivide_factor must be positive and finite");
  }
  if (options.num_groups < 0)
    refuse(group, "num_groups=" + std::to_string(options.num_groups) + ": expected at least 0");
  if (options.num_groups > 0 && !options.groups.empty()) refuse(group, "num_groups and groups cannot be combined");
  if (options.fusion_threshold_bytes <= 0) refuse(group, "fusion_threshold_bytes must be positive");
}

// Returns the optimizer's parameters that require gradients, with their names.
NamedTensors named_parameters_of(torch::optim::Optimizer& inner, const GroupHandle& group, const NamedTensors& named) {
  std::unordered_set<std::string> names;
  std::unordered_map<const c10::TensorImpl*, std::string> name_of;
  for (const auto& [name, tensor] : named) {
    if (!names.insert(name).second)
      refuse(group, "names in named_parameters must be unique, but '" + name + "' is given twice");
    name_of.emplace(tensor.unsafeGetTensorImpl(), name);
  }
  NamedTensors result;
  std::unordered_set<const c10::TensorImpl*> seen;
  size_t number = 0;
  size_t unnamed = 0;
  for (auto& parameter_group : inner.param_groups()) {
    refuse_shards(parameter_group.params(), "DistributedOptimizer",
                  "fully_shard() has reduced the gradients: step the optimizer without DistributedOptimizer.");
    for (const at::Tensor& parameter : parameter_group.params()) {
      const auto name = name_of.find(parameter.unsafeGetTensorImpl());
      if (!named.empty() && name == name_of.end()) ++unnamed;
      const std::string text = name == name_of.end() ? "parameter " + std::to_string(number) : name->second;
      ++number;
      if (parameter.requires_grad() && seen.insert(parameter.unsafeGetTensorImpl()).second) {
        result.emplace_back(text, parameter);
      }
    }
  }
  if (unnamed > 0) {
    refuse(group, "named_parameters lacks " + std::to_string(unnamed) + " of the optimizer's " +
                      std::to_string(number) + " parameters: name all or none");
  }
  return result;
}

BucketPlan groups_of(const std::vector<at::Tensor>& parameters, const GroupHandle& group,
                     const DistributedOptimizerOptions& options) {
  BucketPlan groups;
  if (options.num_groups > 0) {
    const size_t count = std::min(static_cast<size_t>(options.num_groups), parameters.size());
    for (size_t part = 0; part < count; ++part) {
      std::vector<size_t> members;
      for (size_t i = parameters.size() * part / count; i < parameters.size() * (part + 1) / count; ++i)
        members.push_back(i);
      groups.push_back(std::move(members));
    }
    return groups;
  }
  std::unordered_set<size_t> used;
  for (const auto& list : options.groups) {
    std::vector<size_t> members;
    for (const at::Tensor& tensor : list) {
      const auto found = std::find_if(parameters.begin(), parameters.end(),
                                      [&](const at::Tensor& parameter) { return parameter.is_same(tensor); });
      if (found == parameters.end())
        refuse(group, "groups: a tensor is not a parameter of the optimizer that requires gradients");
      const auto index = static_cast<size_t>(found - parameters.begin());
      if (!used.insert(index).second) refuse(group, "groups: a parameter is given twice");
      members.push_back(index);
    }
    if (!members.empty()) groups.push_back(std::move(members));
  }
  return groups;
}

std::vector<at::Tensor> tensors_of(const NamedTensors& named) {
  std::vector<at::Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

}  // namespace

class DistributedOptimizer::Impl {
 public:
  Impl(torch::optim::Optimizer& inner, const GroupHandle& group, const DistributedOptimizerOptions& options)
      : inner_(inner), group_(group), options_(options) {
    check(inner, group, options);
    const NamedTensors named = named_parameters_of(inner, group, options.named_parameters);
    for (const auto& [name, tensor] : named) names_.push_back(name);
    parameters_ = tensors_of(named);
    const BucketPlan plan =
        plan_buckets(parameters_, groups_of(parameters_, group, options), options.fusion_threshold_bytes);
    passes_left_.assign(parameters_.size(), options.backward_passes_per_step);
    if (group.size() == 1) return;
    if (is_adasum()) adasum_allreduce({}, group);  // refuses a number of ranks that is not a power of two
    compare_parameters(named, "DistributedOptimizer", group);
    compare_options(options, plan, group);
    if (!is_adasum()) {
      buckets_.emplace(parameters_, plan, group,
                       GradientBucketsOptions{.average = options.op == Op::kAverage,
                                              .predivide_factor = options.gradient_predivide_factor,
                                              .wire_dtype = wire_dtype(options.compression),
                                              .sparse_as_dense = options.sparse_as_dense});
    }
    for (size_t i = 0; i < parameters_.size(); ++i) {
      hooks_.emplace_back(parameters_[i], [this, i] { gradient_accumulated(i); });
    }
  }

  void step() {
    if (is_adasum() && group_.size() > 1) {
      adasum_step();
      return;
    }
    if (synchronize_in_step) {
      if (synchronized_ && !warned_) {
        warned_ = true;
        TORCH_WARN(who(group_.info()),
                   ": step() after synchronize() reduces the gradients a second time: hold a "
                   "skip_synchronize() guard around step()");
      }
      synchronize();
    }
    synchronized_ = false;
    inner_.step();
  }

  void synchronize() {
    if (is_adasum()) return;
    begun_ = false;
    reset_passes();
    if (buckets_) buckets_->finish();
    keep_hooks();
    synchronized_ = true;
  }

  void zero_grad(bool set_to_none) {
    refuse_when_begun("zero_grad()");
    keep_hooks();
    inner_.zero_grad(set_to_none);
  }

  void set_backward_passes_per_step(int passes) {
    refuse_when_begun("set_backward_passes_per_step()");
    if (passes < 1) refuse(group_, "backward_passes_per_step=" + std::to_string(passes) + ": expected at least 1");
    options_.backward_passes_per_step = passes;
    reset_passes();
  }

  bool is_adasum() const { return options_.op == Op::kAdasum; }
  const GroupHandle& group() const { return group_; }
  torch::optim::Optimizer& inner() { return inner_; }

  bool synchronize_in_step = true;

 private:
  // Runs in a thread of the backward; there is one such thread per device.
  void gradient_accumulated(size_t parameter) {
    const std::lock_guard lock(mutex_);
    if (passes_left_[parameter] <= 0) {
      throw std::logic_error(
          who(group_.info()) + ": DistributedOptimizer: the gradient of '" + names_[parameter] +
          "' was computed more than backward_passes_per_step=" + std::to_string(options_.backward_passes_per_step) +
          " times before step(). Increase it to accumulate gradients locally.");
    }
    begun_ = true;
    if (--passes_left_[parameter] == 0 && buckets_) buckets_->gradient_ready(parameter);
  }

  void refuse_when_begun(const char* operation) const {
    if (!begun_) return;
    throw std::logic_error(who(group_.info()) + ": DistributedOptimizer: " + operation +
                           " was called after backward() but before step() or synchronize(): the gradients are still "
                           "being reduced");
  }

  // Keeps the hooks even if the training loop does not call this class's zero_grad(). synchronize() also reduces
  // gradients that no hook has reported, but then communication does not overlap with the backward.
  void keep_hooks() {
    for (GradientHook& hook : hooks_) hook.keep();
  }

  void reset_passes() { std::fill(passes_left_.begin(), passes_left_.end(), options_.backward_passes_per_step); }

  // Each rank steps with its own gradients. Then the ranks combine the changes of the parameters.
  void adasum_step() {
    begun_ = false;
    reset_passes();
    const at::NoGradGuard no_grad;
    std::vector<at::Tensor> starts;
    for (const at::Tensor& parameter : parameters_) starts.push_back(parameter.detach().clone());
    {
      const at::AutoGradMode with_grad(true);  // as in a direct call, because some optimizers check it
      inner_.step();
    }
    const auto compressed = wire_dtype(options_.compression);
    std::vector<at::Tensor> changes;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const at::Tensor change = parameters_[i].detach() - starts[i];
      changes.push_back(compressed ? change.to(*compressed) : change);
    }
    adasum_allreduce(changes, group_);
    for (size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].detach().copy_(starts[i] + changes[i].to(starts[i].scalar_type()));
    }
  }

  torch::optim::Optimizer& inner_;
  const GroupHandle group_;
  DistributedOptimizerOptions options_;
  std::vector<std::string> names_;
  std::vector<at::Tensor> parameters_;
  std::mutex mutex_;
  std::vector<int> passes_left_;
  bool begun_ = false;  // whether a backward has run since the last reduction
  bool synchronized_ = false;
  bool warned_ = false;
  std::optional<GradientBuckets> buckets_;
  std::vector<GradientHook> hooks_;  // the last member, because the hooks must be removed first
};

DistributedOptimizer::DistributedOptimizer(torch::optim::Optimizer& inner, const GroupHandle& group,
                                           const DistributedOptimizerOptions& options)
    : impl_(std::make_unique<Impl>(inner, group, options)) {}
DistributedOptimizer::~DistributedOptimizer() = default;
void DistributedOptimizer::step() {
  impl_->step();
}
void DistributedOptimizer::synchronize() {
  impl_->synchronize();
}
SkipSynchronizeGuard DistributedOptimizer::skip_synchronize() {
  if (impl_->is_adasum()) {
    throw std::logic_error(who(impl_->group().info()) +
                           ": DistributedOptimizer: skip_synchronize() makes no sense with Adasum, which combines the "
                           "parameters' changes in step()");
  }
  return SkipSynchronizeGuard(impl_->synchronize_in_step);
}
void DistributedOptimizer::zero_grad(bool set_to_none) {
  impl_->zero_grad(set_to_none);
}
void DistributedOptimizer::set_backward_passes_per_step(int passes) {
  impl_->set_backward_passes_per_step(passes);
}
torch::optim::Optimizer& DistributedOptimizer::inner() {
  return impl_->inner();
}

}  // namespace ddp::horovod
