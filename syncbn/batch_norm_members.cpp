#include "syncbn/batch_norm_members.h"

#include <stdexcept>
#include <unordered_set>

namespace ddp::detail {
namespace {

template <typename Impl>
bool describe_as(torch::nn::Module& module, BatchNormMember& member) {
  const auto* impl = module.as<Impl>();
  if (impl == nullptr) return false;
  member.options = &impl->options;
  member.running_mean = &impl->running_mean;
  member.weight = &impl->weight;
  return true;
}

}  // namespace

const at::Tensor* BatchNormMember::key() const {
  if (running_mean->defined()) return running_mean;
  return weight->defined() ? weight : nullptr;
}

std::vector<BatchNormMember> batch_norms_of(torch::nn::Module& model) {
  std::vector<BatchNormMember> found;
  std::unordered_set<const torch::nn::Module*> seen;
  const auto visit = [&](const std::string& name, torch::nn::Module& module) {
    BatchNormMember member{.name = name};
    const bool is_one = describe_as<torch::nn::BatchNorm1dImpl>(module, member) ||
                        describe_as<torch::nn::BatchNorm2dImpl>(module, member) ||
                        describe_as<torch::nn::BatchNorm3dImpl>(module, member);
    if (!is_one || !seen.insert(&module).second) return;
    member.module = module.weak_from_this().lock();
    found.push_back(std::move(member));
  };
  visit("", model);
  for (const auto& item : model.named_modules(/*name_prefix=*/"", /*include_self=*/false))
    visit(item.key(), *item.value());
  return found;
}

torch::nn::AnyModule as_any_module(const std::shared_ptr<torch::nn::Module>& module) {
  using namespace torch::nn;
  if (auto impl = std::dynamic_pointer_cast<BatchNorm1dImpl>(module)) return AnyModule(impl);
  if (auto impl = std::dynamic_pointer_cast<BatchNorm2dImpl>(module)) return AnyModule(impl);
  if (auto impl = std::dynamic_pointer_cast<BatchNorm3dImpl>(module)) return AnyModule(impl);
  throw std::logic_error("not a batch norm: " + module->name());
}

}  // namespace ddp::detail
