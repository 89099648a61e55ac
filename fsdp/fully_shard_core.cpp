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
#include "base/progress/own_page.h"
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
    throw std::invalid_argument(rank + kName + "the dtypes of the policy have to be floating-point ones, got " +
                                c10::toString(*dtype));
  }
}

void check_devices(const std::vector<SelectedUnit>& units, const std::string& rank) {
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
  refuse_shards(module_->parameters(), "fully_shard()", "Call it once for a model.");
  const std::vector<SelectedUnit> units = fsdp::select_units(*module_, options_.units, rank);
  check_devices(units, rank);
  compare(units, *groups_);
  const bool has_python_ranks = runs_python(*groups_);
  fsdp::InitialValues values(
      *groups_, {.broadcasts = options_.init_sync && !has_python_ranks, .computes = options_.initial_values});
  std::optional<FreedMemoryReturns> freed_memory_returns;
  if (is_deferred(*module_)) freed_memory_returns.emplace();
  values.bring_buffers(*module_);
  model_ = std::make_unique<fsdp::ShardedModel>(units, *groups_, options_, has_python_ranks, values);
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
  detail::own_page().enter_phase(at::GradMode::is_enabled() ? progress::Phase::kForward : progress::Phase::kEvaluation);
  model_->begin_forward();
}

void FullyShardCore::after_forward() {
  model_->end_forward();
  if (!at::GradMode::is_enabled()) detail::own_page().enter_phase(progress::Phase::kOther);
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
  return fsdp::clip_shards(shards, max_norm, norm_type, groups_->shard);
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
      const auto shard = shards_.find(parameter.value().unsafeGetTensorImpl());
      if (shard == shards_.end()) continue;
      to.register_parameter(parameter.key(), shard->second, shard->second.requires_grad());
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

// A shared parameter has several names.
ShardedParameter& find(const FullyShardCore& core, const std::string& name) {
  const auto parameters = core.module().named_parameters();
  const at::Tensor* tensor = nullptr;
  for (const auto& parameter : parameters) {
    if (parameter.key() == name) tensor = &parameter.value();
  }
  for (const auto& unit : core.model().units()) {
    for (ShardedParameter& parameter : unit->parameters()) {
      if (tensor != nullptr && parameter.full().is_same(*tensor)) return parameter;
    }
  }
  throw std::invalid_argument(core.model().rank_text() + kName + "the model has no parameter '" + name + "'");
}

}  // namespace

void FullyShardCore::mirror_into(torch::nn::Module& wrapper) const {
  Mirror(*model_).fill(wrapper, *module_);
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
  const ShardedParameter& parameter = find(*core_, name);
  return parameter.whole_from(all_gather(parameter.padded_shard(), core_->model().shard_group()));
}

void FullyShardedWrapper::set_full_parameter(const std::string& name, const at::Tensor& value) {
  find(*core_, name).set_from(value);
}

void refuse_to_move_shards() {
  throw std::logic_error(
      "a fully sharded model cannot be moved to another device or dtype: call to() on the model before "
      "fully_shard().");
}

}  // namespace ddp
