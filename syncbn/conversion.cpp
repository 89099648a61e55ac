#include "ddprun/syncbn/conversion.h"

#include <torch/nn/modules/container/sequential.h>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/comm/wrapped_parameters.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "syncbn/batch_norm_members.h"
#include "syncbn/conversion_registry.h"

namespace ddp {
namespace {

using detail::BatchNormMember;
using detail::ConversionRegistry;
using detail::ConvertedLayer;
using ModulePtr = std::shared_ptr<torch::nn::Module>;

// Returns all modules of the model, beginning with the model itself.
std::vector<torch::nn::Module*> modules_of(torch::nn::Module& model) {
  std::vector<torch::nn::Module*> modules{&model};
  for (const ModulePtr& module : model.modules(/*include_self=*/false)) modules.push_back(module.get());
  return modules;
}

void refuse_wrapped(const torch::nn::Module& model, const GroupHandle& group) {
  if (!is_wrapped(model)) return;
  throw std::logic_error(who(group.info()) +
                         ": convert_sync_batchnorm: the model is wrapped in DistributedDataParallel already. The right "
                         "order is SyncBatchNorm, then mixed precision (amp), then DistributedDataParallel (DDP).");
}

// The position of a child module in a Sequential.
struct Place {
  torch::nn::SequentialImpl* sequential;
  size_t index;
  std::string name;
};

// Returns the places in which `module` can be replaced. The result is empty if a module other than a Sequential refers
// to it, because callers could then reach it without a Sequential.
std::vector<Place> replaceable_places(const std::vector<torch::nn::Module*>& modules, const torch::nn::Module& module) {
  std::vector<Place> places;
  for (torch::nn::Module* parent : modules) {
    auto* sequential = parent->as<torch::nn::SequentialImpl>();
    const auto children = parent->named_children();
    for (size_t i = 0; i < children.size(); ++i) {
      if (children[i].value().get() != &module) continue;
      if (sequential == nullptr) return {};
      places.push_back({sequential, i, children[i].key()});
    }
  }
  return places;
}

void put(const Place& place, torch::nn::AnyModule module) {
  place.sequential->replace_module(place.name, module.ptr());
  *(place.sequential->begin() + static_cast<std::ptrdiff_t>(place.index)) = std::move(module);
}

std::shared_ptr<SyncBatchNormImpl> synchronised(const BatchNormMember& member, const GroupHandle& group) {
  auto result = std::make_shared<SyncBatchNormImpl>(SyncBatchNormOptions(*member.options, group));
  result->train(member.module->is_training());
  result->set_replaced_module(member.module);
  return result;
}

}  // namespace

size_t convert_sync_batchnorm(torch::nn::Module& model, const GroupHandle& group) {
  refuse_wrapped(model, group);
  const std::vector<torch::nn::Module*> modules = modules_of(model);
  const std::vector<BatchNormMember> members = detail::batch_norms_of(model);
  std::vector<std::shared_ptr<ConvertedLayer>> layers;
  std::vector<std::pair<BatchNormMember, std::vector<Place>>> replacements;
  for (const BatchNormMember& member : members) {
    if (!member.module) {
      throw std::invalid_argument(
          who(group.info()) +
          ": convert_sync_batchnorm: the batch norm itself has to be held by a module holder or a std::shared_ptr");
    }
    if (const at::Tensor* key = member.key()) {
      layers.push_back(std::make_shared<ConvertedLayer>(ConvertedLayer{
          .module = member.module,
          .member = key,
          .key = c10::weak_intrusive_ptr<c10::TensorImpl>(key->getIntrusivePtr()),
          .layer = std::make_shared<detail::SyncLayer>(group, member.name, member.options->num_features())}));
      continue;
    }
    std::vector<Place> places = replaceable_places(modules, *member.module);
    if (places.empty()) {
      throw std::invalid_argument(
          who(group.info()) + ": convert_sync_batchnorm: '" + (member.name.empty() ? "the model itself" : member.name) +
          "' has neither running statistics nor weights (track_running_stats and affine are off), so its kind is "
          "unknown. "
          "Turn one of them on, put it into a Sequential, or use ddp::SyncBatchNorm there. Nothing was converted.");
    }
    replacements.emplace_back(member, std::move(places));
  }
  ConversionRegistry::instance().add(layers);
  for (const auto& [member, places] : replacements) {
    const auto replacement = synchronised(member, group);
    for (const Place& place : places) put(place, torch::nn::AnyModule(replacement));
  }
  return members.size();
}

size_t revert_sync_batchnorm(torch::nn::Module& model) {
  size_t count = 0;
  for (const BatchNormMember& member : detail::batch_norms_of(model)) {
    const at::Tensor* key = member.key();
    if (key != nullptr && ConversionRegistry::instance().remove(*key)) ++count;
  }
  const std::vector<torch::nn::Module*> modules = modules_of(model);
  for (torch::nn::Module* module : modules) {
    const auto* replacement = module->as<SyncBatchNormImpl>();
    if (replacement == nullptr || !replacement->replaced_module()) continue;
    const std::vector<Place> places = replaceable_places(modules, *module);
    if (places.empty()) continue;
    const ModulePtr& original = replacement->replaced_module();
    original->train(replacement->is_training());
    for (const Place& place : places) put(place, detail::as_any_module(original));
    ++count;
  }
  return count;
}

}  // namespace ddp
