#include "ddprun/optim/zero_redundancy_optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/where.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <sstream>
#include <stdexcept>

#include <ddprun/comm/collectives.h>
#include <ddprun/detail/comm/device_copy.h>
#include <ddprun/detail/comm/shard_group.h>

#include "comm/group/verify_across_ranks.h"
#include "optim/device_groups.h"
#include "optim/gradient_checks.h"

namespace ddp {
namespace {

const void* identity(const at::Tensor& tensor) {
  return tensor.unsafeGetTensorImpl();
}

// The join hook: a rank that has run out of inputs takes its part in the other ranks' iterations.
class ZeroJoinHook : public JoinHook {
 public:
  explicit ZeroJoinHook(ZeroCore& optimizer) : optimizer_(optimizer) {}
  void main_hook() override { optimizer_.step(); }

 private:
  ZeroCore& optimizer_;
};

at::Tensor on_host(const at::Tensor& tensor) {
  return at::empty_like(tensor, tensor.options().device(c10::kCPU)).copy_(tensor);
}

}  // namespace

ZeroCore::ZeroCore(const Groups& groups, std::unique_ptr<torch::optim::OptimizerOptions> defaults,
                   const MakeLocal& make_local, const GroupHandle& group, const ZeroOptions& options)
    : FusedOptimizer(groups, std::move(defaults)),
      group_(group),
      options_(options),
      partition_(group.size()),
      shares_(static_cast<size_t>(group.size())) {
  check_parameters();
  require_equal_on_all_ranks();
  local_ = make_local(assign_new_groups());
  require_independent_steps();
  build_buckets();
}

ZeroCore::~ZeroCore() = default;

void ZeroCore::check_parameters() const {
  const auto refuse = [&](const char* text) {
    throw std::invalid_argument(who(group_.info()) + ": ZeroRedundancyOptimizer " + text);
  };
  bool any = false;
  for (const auto& each : param_groups_) {
    refuse_shards(each.params(), "ZeroRedundancyOptimizer",
                  "Shards have no redundancy: use the optimizer without ZeroRedundancyOptimizer.");
    for (const auto& parameter : each.params()) {
      any = true;
      if (parameter.layout() != at::kStrided) refuse("only supports using the same dense type for all parameters");
    }
  }
  if (!any) refuse("got an empty parameter list");
  if (options_.bucket_cap_bytes < 1) refuse("needs bucket_cap_bytes of at least 1");
}

void ZeroCore::require_equal_on_all_ranks() const {
  std::vector<std::string> lines;
  for (const auto& each : param_groups_) {
    lines.push_back("a parameter group of " + std::to_string(each.params().size()));
    for (const auto& parameter : each.params()) {
      std::ostringstream line;
      line << "a parameter " << parameter.scalar_type() << " of shape " << parameter.sizes();
      lines.push_back(line.str());
    }
  }
  verify_equal_across_ranks("ZeroRedundancyOptimizer: the ranks' parameters", lines, group_);
}

// Refuses optimizers that need the gradients of all parameters, since each rank steps only its own share.
void ZeroCore::require_independent_steps() const {
  for (const auto& each : param_groups_) {
    if (const auto reason = local_->dependence(each); !reason.empty()) {
      throw std::invalid_argument(who(group_.info()) + ": ZeroRedundancyOptimizer cannot shard " + type_name() + ": " +
                                  reason);
    }
  }
}

// Returns this rank's share of the groups that were added since the last call.
ZeroCore::Groups ZeroCore::assign_new_groups() {
  Groups own;
  for (; assigned_groups_ < param_groups_.size(); ++assigned_groups_) {
    const auto& each = param_groups_[assigned_groups_];
    std::vector<int64_t> sizes;
    for (const auto& parameter : each.params()) sizes.push_back(parameter.numel());
    const auto assigned = partition_.add_group(sizes);
    std::vector<at::Tensor> own_parameters;
    for (size_t rank = 0; rank < assigned.size(); ++rank) {
      for (const size_t index : assigned[rank]) {
        const auto& parameter = each.params()[index];
        rank_of_[identity(parameter)] = static_cast<int>(rank);
        shares_[rank].push_back(parameter);
        if (static_cast<int>(rank) == group_.rank()) own_parameters.push_back(parameter);
      }
    }
    own.emplace_back(std::move(own_parameters), each.options().clone());
  }
  return own;
}

// Code may have added groups through a torch::optim::Optimizer reference.
void ZeroCore::adopt_new_groups() {
  if (assigned_groups_ == param_groups_.size()) return;
  for (const auto& each : assign_new_groups()) local_->add_param_group(each);
  build_buckets();
}

// Moves the parameters into buckets. They keep their memory layout, because the optimizer's state has the same layout.
void ZeroCore::build_buckets() {
  if (!options_.parameters_as_bucket_view) return;
  const at::NoGradGuard no_grad;
  buckets_.assign(shares_.size(), {});
  places_.clear();
  for (size_t rank = 0; rank < shares_.size(); ++rank) {
    for (const auto& parameters : optim::by_device_and_dtype(shares_[rank])) {
      int64_t size = 0;
      for (const auto& parameter : parameters) size += parameter.numel();
      auto bucket = at::empty({size}, parameters.front().options().requires_grad(false));
      int64_t offset = 0;
      for (const auto& parameter : parameters) {
        // An empty parameter keeps its own memory: in the bucket, several parameters would have the same address and
        // could not be distinguished.
        if (parameter.numel() == 0) continue;
        const auto dense =
            parameter.is_non_overlapping_and_dense() ? parameter.detach() : parameter.detach().contiguous();
        auto place = bucket.as_strided(dense.sizes(), dense.strides(), offset);
        place.copy_(dense);
        // An alias without autograd's view tracking, because parameters must stay leaves.
        const_cast<at::Tensor&>(parameter).set_data(
            at::empty({0}, bucket.options()).set_(bucket.storage(), offset, dense.sizes(), dense.strides()));
        offset += parameter.numel();
        places_.emplace_back(parameter, parameter.const_data_ptr());
      }
      buckets_[rank].push_back(std::move(bucket));
    }
  }
}

// Whether parameters have other memory than before, which torch::load() and set_data() cause.
bool ZeroCore::has_moved_parameters() const {
  return std::ranges::any_of(places_, [](const auto& place) { return place.first.const_data_ptr() != place.second; });
}

void ZeroCore::notify() {
  if (!is_notified_) notify_join_context();
  is_notified_ = true;
}

torch::Tensor ZeroCore::step(LossClosure closure) {
  is_notified_ = false;  // a closure may have thrown in the previous step
  notify();              // before the collectives that the closure calls
  return FusedOptimizer::step(std::move(closure));
}

void ZeroCore::apply_step(const optim::GradientScaling& scaling) {
  notify();
  is_notified_ = false;
  adopt_new_groups();
  if (has_moved_parameters()) build_buckets();
  for (size_t i = 0; i < param_groups_.size(); ++i) {
    local_->param_groups()[i].set_options(param_groups_[i].options().clone());
  }
  require_independent_steps();
  // Every rank checks all parameters. Otherwise only the owner would throw, and the other ranks would wait for it.
  optim::check_gradients(param_groups_, type_name());
  local_->step_scaled(scaling);
  if (scaling.grad_scale.defined()) unscale_others_gradients(scaling);
  is_consolidated_ = false;
  consolidated_.clear();
  send_parameters();
}

// Unscales the gradients of parameters that other ranks step; the fused step does it for this rank's own. If the step
// is skipped, the gradients do not change.
void ZeroCore::unscale_others_gradients(const optim::GradientScaling& scaling) const {
  at::Tensor divisor = scaling.grad_scale.reshape({});
  if (scaling.found_inf.defined()) {
    divisor = at::where(to_device(scaling.found_inf, divisor.device()).reshape({}).ne(0), 1.0, divisor).to(at::kFloat);
  }
  for (int rank = 0; rank < group_.size(); ++rank) {
    if (rank == group_.rank()) continue;
    for (const auto& parameter : shares_[static_cast<size_t>(rank)]) {
      const at::Tensor& gradient = parameter.grad();
      if (gradient.defined()) gradient.div_(to_device(divisor, gradient.device()));
    }
  }
}

void ZeroCore::send_parameters() {
  if (group_.size() == 1) return;
  for (int rank = 0; rank < group_.size(); ++rank) {
    const auto index = static_cast<size_t>(rank);
    if (options_.parameters_as_bucket_view) {
      for (const auto& bucket : buckets_[index]) broadcast(bucket, rank, group_);
    } else {
      for (const auto& parameters : optim::by_device_and_dtype(owned_by(rank))) {
        broadcast_coalesced(parameters, rank, group_, options_.bucket_cap_bytes);
      }
    }
  }
}

std::vector<at::Tensor> ZeroCore::owned_by(int rank) const {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : shares_[static_cast<size_t>(rank)]) {
    if (parameter.numel() > 0) parameters.push_back(parameter.detach());
  }
  return parameters;
}

int ZeroCore::rank_of(const at::Tensor& parameter) const {
  const auto found = rank_of_.find(identity(parameter));
  if (found == rank_of_.end()) {
    throw std::invalid_argument(who(group_.info()) +
                                ": ZeroRedundancyOptimizer: the tensor is not a parameter of this optimizer");
  }
  return found->second;
}

void ZeroCore::consolidate_state(int to) {
  if (to < 0 || to >= group_.size()) {
    throw std::invalid_argument(who(group_.info()) + ": consolidate_state: there is no rank " + std::to_string(to));
  }
  adopt_new_groups();
  const at::NoGradGuard no_grad;
  // Only the owner knows which tensors a parameter's state contains; their shapes follow from the parameter.
  std::ostringstream own;
  for (const auto& parameter : shares_[static_cast<size_t>(group_.rank())]) {
    for (const auto& [name, tensor] : local_->parameter_state(parameter)) own << name << " ";
    own << "; ";
  }
  const auto described = all_gather_strings(own.str(), group_);
  std::map<const void*, optim::StateTensors> consolidated;
  for (int rank = 0; rank < group_.size(); ++rank) {
    std::istringstream words(described[static_cast<size_t>(rank)]);
    std::vector<at::Tensor> tensors;
    std::vector<std::pair<const void*, std::string>> places;
    for (const auto& parameter : shares_[static_cast<size_t>(rank)]) {
      const auto state = rank == group_.rank() ? local_->parameter_state(parameter) : optim::StateTensors{};
      for (std::string name; words >> name && name != ";";) {
        if (rank == group_.rank()) {
          tensors.push_back(state.at(name));
        } else {
          tensors.push_back(local_->empty_state(parameter, name));
        }
        places.emplace_back(identity(parameter), name);
      }
    }
    if (rank != to && group_.size() > 1) {
      for (const auto& group : optim::by_device_and_dtype(tensors)) {
        broadcast_coalesced(group, rank, group_, options_.bucket_cap_bytes);
      }
    }
    if (group_.rank() != to) continue;
    for (size_t i = 0; i < tensors.size(); ++i) consolidated[places[i].first][places[i].second] = on_host(tensors[i]);
  }
  consolidated_ = std::move(consolidated);
  is_consolidated_ = group_.rank() == to;
}

optim::StateTensors ZeroCore::parameter_state(const at::Tensor& parameter) const {
  rank_of(parameter);
  if (group_.size() == 1) return local_->parameter_state(parameter);
  if (!is_consolidated_) {
    throw std::runtime_error(who(group_.info()) +
                             ": Optimizer state has not been consolidated on this rank. Please call "
                             "`consolidate_state(" +
                             std::to_string(group_.rank()) +
                             ")` on all ranks beforehand if you meant to save the global state.");
  }
  const auto found = consolidated_.find(identity(parameter));
  return found == consolidated_.end() ? optim::StateTensors{} : found->second;
}

bool ZeroCore::keeps_state_of(const at::Tensor& parameter) const {
  const auto found = rank_of_.find(identity(parameter));
  return found != rank_of_.end() && found->second == group_.rank();
}

optim::StateTensors ZeroCore::kept_state(const at::Tensor& parameter) const {
  return keeps_state_of(parameter) ? local_->parameter_state(parameter) : optim::StateTensors{};
}

void ZeroCore::check_parameter_state(const at::Tensor& parameter, const optim::StateTensors& state) const {
  local_->check_parameter_state(parameter, state);
}

void ZeroCore::set_parameter_state(const at::Tensor& parameter, const optim::StateTensors& state) {
  adopt_new_groups();
  check_parameter_state(parameter, state);
  is_consolidated_ = false;
  consolidated_.clear();
  if (rank_of(parameter) == group_.rank()) local_->set_parameter_state(parameter, state);
}

bool ZeroCore::has_state(const std::string& name) const {
  return local_->has_state(name);
}

at::Tensor ZeroCore::empty_state(const at::Tensor& parameter, const std::string& name) const {
  return local_->empty_state(parameter, name);
}

std::unique_ptr<JoinHook> ZeroCore::join_hook(const JoinOptions&) {
  return std::make_unique<ZeroJoinHook>(*this);
}

c10::Device ZeroCore::join_device() const {
  return shares_.front().empty() ? group_.device() : shares_.front().front().device();
}

}  // namespace ddp
