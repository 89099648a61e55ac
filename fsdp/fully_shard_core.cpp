#include "ddprun/detail/fsdp/fully_shard_core.h"

#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <unordered_map>
#include <utility>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/detail/comm/shard_group.h>
#include <ddprun/detail/comm/wrapped_parameters.h>
#include <ddprun/fsdp/deferred_init.h>

#include "base/malloc_tuning.h"
#include "comm/core/recomputation.h"
#include "comm/group/verify_across_ranks.h"
#include "fsdp/clip_shards.h"
#include "fsdp/initial_values.h"
#include "fsdp/sharded_model.h"
#include "fsdp/unit_selection.h"

namespace ddp {
namespace {

using fsdp::SelectedUnit;
using fsdp::ShardedParameter;
using fsdp::ShardGroups;

constexpr const char* kName = ": fully_shard(): ";

fsdp::ShardGroups groups_of(const DeviceMesh& mesh) {
  const std::vector<std::string> names = mesh.names();
  if (names.size() == 1) return {.shard = mesh[names[0]], .replicate = std::nullopt};
  if (names.size() == 2) return {.shard = mesh[names[1]], .replicate = mesh[names[0]]};
  throw std::invalid_argument(who(mesh.group().info()) + kName +
                              "expected a mesh of one dimension (shard) or two (replicate, shard), got " +
                              std::to_string(names.size()) + ". Take a slice of it.");
}

std::vector<std::string> description_of(const std::vector<SelectedUnit>& units) {
  std::vector<std::string> lines;
  for (const SelectedUnit& unit : units) {
    lines.push_back("unit " + unit.name);
    for (const fsdp::UnitParameter& parameter : unit.parameters) {
      std::ostringstream line;
      line << parameter.name << ": " << parameter.tensor.scalar_type() << " " << parameter.tensor.sizes()
           << (parameter.tensor.requires_grad() ? "" : ", frozen");
      lines.push_back(line.str());
    }
  }
  return lines;
}

void compare(const std::vector<SelectedUnit>& units, const ShardGroups& groups) {
  const std::vector<std::string> lines = description_of(units);
  verify_equal_across_ranks("the units of fully_shard()", lines, groups.shard);
  if (groups.replicate) verify_equal_across_ranks("the units of fully_shard()", lines, *groups.replicate);
}

bool runs_python(const ShardGroups& groups) {
  return !ranks_running_python(groups.shard).empty() ||
         (groups.replicate && !ranks_running_python(*groups.replicate).empty());
}

void check_policy(const MixedPrecisionPolicy& policy, const std::string& rank) {
  for (const auto& dtype : {policy.param_dtype, policy.reduce_dtype, policy.output_dtype}) {
    if (!dtype || at::isFloatingType(*dtype)) continue;
    throw std::invalid_argument(rank + kName + "the dtypes of the policy must be floating-point types, got " +
                                c10::toString(*dtype));
  }
}

// Returns the device that all parameters are on.
c10::Device device_of(const std::vector<SelectedUnit>& units, const std::string& rank) {
  const at::Tensor* first = nullptr;
  for (const SelectedUnit& unit : units) {
    for (const fsdp::UnitParameter& parameter : unit.parameters) {
      if (first == nullptr) first = &parameter.tensor;
      if (parameter.tensor.device() == first->device()) continue;
      std::ostringstream text;
      text << rank << kName << "the parameter " << parameter.name << " is on " << parameter.tensor.device()
           << ", others are on " << first->device() << ". Move the whole model to one device first.";
      throw std::invalid_argument(text.str());
    }
  }
  if (first == nullptr) throw std::invalid_argument(rank + kName + "the model has no parameters");
  return first->device();
}

// Only with offloading may the model be on the CPU while the group computes on a device.
c10::Device computing_device(const std::vector<SelectedUnit>& units, const GroupHandle& group, bool offloads) {
  const c10::Device device = device_of(units, who(group.info()));
  return offloads && device.is_cpu() ? group.device() : device;
}

void move_buffers(const torch::nn::Module& module, c10::Device device) {
  const at::NoGradGuard no_grad;
  for (at::Tensor& buffer : module.buffers()) {
    if (buffer.defined() && buffer.device() != device) buffer.set_data(buffer.to(device));
  }
}

}  // namespace

ShardMesh::ShardMesh(const GroupHandle& group)
    : groups_(std::make_shared<ShardGroups>(ShardGroups{.shard = group, .replicate = std::nullopt})) {}

ShardMesh::ShardMesh(const DeviceMesh& mesh) : groups_(std::make_shared<ShardGroups>(groups_of(mesh))) {}

FullyShardCore::FullyShardCore(const std::shared_ptr<torch::nn::Module>& module, const ShardMesh& mesh,
                               const FullyShardOptions& options)
    : options_(options), module_(module), groups_(std::make_unique<ShardGroups>(mesh.groups())) {
  const std::string rank = who(groups_->shard.info());
  if (!module_) throw std::invalid_argument(rank + kName + "the module holder is empty");
  check_policy(options_.policy, rank);
  require_unwrapped(*module_, rank + ": fully_shard()");
  refuse_shards(module_->parameters(), "fully_shard()", "Call it only once for each model.");
  const std::vector<SelectedUnit> units = fsdp::select_units(*module_, options_.units, options_.ignored_params, rank);
  const c10::Device device = computing_device(units, groups_->shard, options_.offload.has_value());
  compare(units, *groups_);
  const bool has_python_ranks = runs_python(*groups_);
  fsdp::InitialValues values(
      *groups_,
      {.broadcasts = options_.init_sync && !has_python_ranks, .computes = options_.initial_values, .device = device});
  std::optional<FreedMemoryReturns> freed_memory_returns;
  if (is_deferred(*module_)) freed_memory_returns.emplace();
  values.initialize_buffers(*module_);
  move_buffers(*module_, device);
  model_ = std::make_unique<fsdp::ShardedModel>(units, *groups_, options_, device, has_python_ranks, values);
  values.compute_rest(*module_);
  take_rank_stream(groups_->shard);
}

FullyShardCore::~FullyShardCore() = default;

void FullyShardCore::before_forward() {
  if (!groups_->shard.is_open()) throw std::runtime_error(model_->rank_text() + kName + "the process group is closed");
  if (thread_recomputes()) {
    throw std::logic_error(model_->rank_text() + kName +
                           "the model's forward runs in the backward, because a region of checkpoint() contains it. "
                           "Call checkpoint() inside the model.");
  }
  model_->begin_forward();
}

void FullyShardCore::after_forward() {
  model_->end_forward();
}

void FullyShardCore::after_failed_forward() noexcept {
  model_->fail_forward();
}

bool FullyShardCore::needs_cast(const at::Tensor& input) const {
  return input.defined() && input.is_floating_point() && input.scalar_type() != *options_.policy.param_dtype;
}

at::Tensor FullyShardCore::cast_input(const at::Tensor& input) const {
  return needs_cast(input) ? input.to(*options_.policy.param_dtype) : input;
}

at::Tensor FullyShardCore::cast_output(const at::Tensor& output) const {
  if (!output.defined() || !output.is_floating_point()) return output;
  return output.to(*options_.policy.output_dtype);
}

at::Tensor FullyShardCore::clip(const std::vector<at::Tensor>& shards, double max_norm, double norm_type) const {
  return fsdp::clip_shards(shards, max_norm, norm_type, groups_->shard, model_->device());
}

namespace {

// A module of the wrapper with a place for each parameter, buffer and child of the model's.
class Mirror {
 public:
  explicit Mirror(fsdp::ShardedModel& model) {
    for (const auto& unit : model.units()) {
      for (const ShardedParameter& parameter : unit->parameters()) {
        shards_.emplace(parameter.full().unsafeGetTensorImpl(), parameter.shard());
      }
    }
  }

  void fill(torch::nn::Module& to, const torch::nn::Module& from) {
    for (const auto& parameter : from.named_parameters(/*recurse=*/false)) {
      if (!parameter.value().defined()) continue;
      const auto shard = shards_.find(parameter.value().unsafeGetTensorImpl());
      const at::Tensor& tensor = shard == shards_.end() ? parameter.value() : shard->second;  // one that is ignored
      to.register_parameter(parameter.key(), tensor, tensor.requires_grad());
    }
    for (const auto& buffer : from.named_buffers(/*recurse=*/false)) to.register_buffer(buffer.key(), buffer.value());
    for (const auto& child : from.named_children()) {
      auto& mirrored = modules_[child.value().get()];
      if (!mirrored) {
        mirrored = std::make_shared<torch::nn::Module>(child.value()->name());
        mirrored->train(child.value()->is_training());
        fill(*mirrored, *child.value());
      }
      to.register_module(child.key(), mirrored);
    }
  }

 private:
  std::unordered_map<const c10::TensorImpl*, at::Tensor> shards_;
  std::unordered_map<const torch::nn::Module*, std::shared_ptr<torch::nn::Module>> modules_;
};

at::Tensor tensor_named(const FullyShardCore& core, const std::string& name) {
  const auto parameters = core.module().named_parameters();
  if (const at::Tensor* tensor = parameters.find(name)) return *tensor;
  throw std::invalid_argument(core.model().rank_text() + kName + "the model has no parameter '" + name + "'");
}

// A shared parameter has several names. Null for a parameter that is ignored.
ShardedParameter* find(const FullyShardCore& core, const at::Tensor& tensor) {
  for (const auto& unit : core.model().units()) {
    for (ShardedParameter& parameter : unit->parameters()) {
      if (parameter.full().is_same(tensor)) return &parameter;
    }
  }
  return nullptr;
}

}  // namespace

void FullyShardCore::mirror_into(torch::nn::Module& wrapper) const {
  Mirror(*model_).fill(wrapper, *module_);
}

std::unique_ptr<JoinHook> FullyShardedWrapper::join_hook(const JoinOptions& /*options*/) {
  throw std::logic_error(core_->model().rank_text() +
                         ": join() cannot shadow a model of fully_shard(): a rank without inputs would have to gather "
                         "every unit for the others, in the order of their operators. Give all ranks equally many "
                         "batches, as DistributedSampler does.");
}

c10::Device FullyShardedWrapper::join_device() const {
  return core_->model().device();
}

const GroupHandle& FullyShardedWrapper::join_group() const {
  return core_->model().shard_group();
}

void FullyShardedWrapper::set_requires_gradient_sync(bool enabled) {
  core_->model().reduces = enabled;
}

void FullyShardedWrapper::set_requires_all_reduce(bool enabled) {
  core_->model().all_reduces = enabled;
}

void FullyShardedWrapper::set_reshard_after_backward(bool enabled) {
  core_->model().reshards_after_backward = enabled;
}

void FullyShardedWrapper::set_reshard_after_forward(bool enabled) {
  for (const auto& unit : core_->model().units())
    core_->model().traits(unit->number()).reshards_after_forward = enabled;
}

void FullyShardedWrapper::set_is_last_backward(bool enabled) {
  core_->model().is_last_backward = enabled;
}

void FullyShardedWrapper::set_gradient_divide_factor(double factor) {
  for (const auto& unit : core_->model().units()) core_->model().set_divide_factor(unit->number(), factor);
}

void FullyShardedWrapper::set_force_sum_reduction_for_comms(bool enabled) {
  for (const auto& unit : core_->model().units()) unit->gradients().settings().only_sums = enabled;
}

void FullyShardedWrapper::set_reduce_scatter_unused_params(bool enabled) {
  for (const auto& unit : core_->model().units()) unit->gradients().settings().reduces_unused = enabled;
}

ShardedUnit FullyShardedWrapper::unit(const std::string& name) const {
  return {core_, core_->model().unit_named(name)};
}

void FullyShardedWrapper::reshard() {
  core_->model().reshard();
}

void FullyShardedWrapper::reset_iteration() {
  core_->model().reset();
}

void FullyShardedWrapper::drop_unreduced_gradients() {
  core_->model().drop_unreduced();
}

at::Tensor FullyShardedWrapper::full_parameter(const std::string& name) const {
  const at::Tensor tensor = tensor_named(*core_, name);
  const ShardedParameter* parameter = find(*core_, tensor);
  if (parameter == nullptr) return tensor.detach().clone();
  return parameter->whole_from(all_gather(parameter->padded_shard(), core_->model().shard_group()));
}

void FullyShardedWrapper::set_full_parameter(const std::string& name, const at::Tensor& value) {
  const at::Tensor tensor = tensor_named(*core_, name);
  ShardedParameter* parameter = find(*core_, tensor);
  if (parameter != nullptr) return parameter->set_from(value);
  fsdp::check_whole_shape(name, tensor, value);
  const at::NoGradGuard no_grad;
  tensor.copy_(value);
}

void refuse_to_move_shards() {
  throw std::logic_error(
      "a fully sharded model cannot be moved to another device or dtype: call to() on the model before "
      "fully_shard().");
}

}  // namespace ddp
