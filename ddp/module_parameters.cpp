#include "ddp/module_parameters.h"

#include <torch/nn/modules/embedding.h>

#include <unordered_set>
#include <utility>

namespace ddp {
namespace {

// LibTorch's accessors copy names and tensors into new dictionaries; this is called in every forward.
struct Registered : torch::nn::Module {
  static const torch::OrderedDict<std::string, at::Tensor>& parameters_of(const torch::nn::Module& module) {
    return module.*(&Registered::parameters_);
  }
};

bool has_sparse_gradients(const torch::nn::Module& module) {
  if (const auto* embedding = module.as<torch::nn::EmbeddingImpl>()) return embedding->options.sparse();
  if (const auto* bag = module.as<torch::nn::EmbeddingBagImpl>()) return bag->options.sparse();
  return false;
}

}  // namespace

ModuleParameters::ModuleParameters(std::shared_ptr<torch::nn::Module> module, const DdpOptions& options)
    : ModelParameters(options), module_(std::move(module)) {
  add("", module_);
}

void ModuleParameters::add(const std::string& prefix, const std::shared_ptr<torch::nn::Module>& module) {
  Part part{.prefix = prefix, .module = module, .parameters = {}, .children = {}};
  const bool sparse_module = has_sparse_gradients(*module);
  for (const auto& item : Registered::parameters_of(*module)) {
    const std::string name = prefix + item.key();
    part.parameters.emplace_back(name, item.value());
    if (item.value().defined()) add_parameter(name, item.value(), sparse_module);
  }
  const auto children = module->named_children();
  for (const auto& child : children) part.children.push_back(child.value().get());
  parts_.push_back(std::move(part));
  for (const auto& child : children) add(prefix + child.key() + ".", child.value());
}

std::vector<NamedTensor> ModuleParameters::with_ignored() const {
  std::vector<NamedTensor> result;
  for (const auto& item : module_->named_parameters()) result.push_back({item.key(), item.value()});
  return result;
}

std::vector<NamedTensor> ModuleParameters::buffers() const {
  std::vector<NamedTensor> result;
  std::unordered_set<const c10::TensorImpl*> seen;
  for (const Part& part : parts_) {
    for (const auto& item : part.module->named_buffers(/*recurse=*/false)) {
      const std::string name = part.prefix + item.key();
      if (!item.value().defined() || is_ignored(name)) continue;
      if (seen.insert(item.value().unsafeGetTensorImpl()).second) result.push_back({name, item.value()});
    }
  }
  return result;
}

bool ModuleParameters::is_unchanged(const Part& part) const {
  const auto& parameters = Registered::parameters_of(*part.module);
  if (parameters.size() != part.parameters.size()) return false;
  for (size_t i = 0; i < part.parameters.size(); ++i) {
    if (part.parameters[i].is_same(parameters[i].value())) continue;
    if (!is_ignored(part.parameters[i].name())) return false;
  }
  const auto children = part.module->children();
  if (children.size() != part.children.size()) return false;
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i].get() != part.children[i]) return false;
  }
  return true;
}

void ModuleParameters::explain(const Part& part, const std::string& rank) {
  const auto& parameters = Registered::parameters_of(*part.module);
  for (const auto& item : parameters) {
    const std::string name = part.prefix + item.key();
    const ParameterSnapshot* seen = nullptr;
    for (const ParameterSnapshot& candidate : part.parameters) {
      if (candidate.name() == name) seen = &candidate;
    }
    if (seen == nullptr) refuse_changed_model(rank, "parameter '" + name + "' was added");
    if (!seen->is_same(item.value())) seen->refuse(item.value(), rank);
  }
  for (const ParameterSnapshot& seen : part.parameters) {
    if (!parameters.contains(seen.name().substr(part.prefix.size())))
      refuse_changed_model(rank, "parameter '" + seen.name() + "' was removed");
  }
  for (const auto& child : part.module->named_children()) {
    bool known = false;
    for (const auto* before : part.children) known = known || before == child.value().get();
    if (known) continue;
    const auto inside = child.value()->named_parameters();
    refuse_changed_model(rank, "submodule '" + part.prefix + child.key() + "' was added or replaced" +
                                   (inside.is_empty() ? ""
                                                      : " (with parameter '" + part.prefix + child.key() + "." +
                                                            inside.front().key() + "')"));
  }
  refuse_changed_model(rank, "a submodule of '" + part.prefix + "' was removed or moved");
}

void ModuleParameters::check_unchanged(const std::string& rank) const {
  for (const Part& part : parts_) {
    if (!is_unchanged(part)) explain(part, rank);
  }
}

}  // namespace ddp
