#include "ddprun/ddp/model_parameters.h"

#include <torch/nn/modules/embedding.h>

#include <sstream>
#include <stdexcept>
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

[[noreturn]] void changed(const std::string& rank, const std::string& what) {
  throw std::runtime_error(
      rank + ": " + what +
      " after the model was wrapped in DistributedDataParallel, whose gradient buckets don't follow. "
      "Change the model before wrapping it, or wrap it anew on all ranks.");
}

}  // namespace

ModelParameters::ModelParameters(std::shared_ptr<torch::nn::Module> module, std::vector<std::string> ignored)
    : ignored_(ignored.begin(), ignored.end()) {
  add("", module);
}

void ModelParameters::add(const std::string& prefix, const std::shared_ptr<torch::nn::Module>& module) {
  Part part{.prefix = prefix, .module = module, .parameters = {}, .children = {}};
  const bool sparse_module = has_sparse_gradients(*module);
  for (const auto& item : Registered::parameters_of(*module)) {
    const at::Tensor& tensor = item.value();
    const std::string name = prefix + item.key();
    if (!tensor.defined()) {
      part.parameters.push_back({name, nullptr, at::ScalarType::Undefined, c10::Device(c10::kCPU), false, {}});
      continue;
    }
    part.parameters.push_back({name, tensor.unsafeGetTensorImpl(), tensor.scalar_type(), tensor.device(),
                               tensor.requires_grad(), tensor.sizes().vec()});
    if (is_ignored(name) || !known_.insert(tensor.unsafeGetTensorImpl()).second) continue;
    all_.push_back({name, tensor});
    sparse_.push_back(sparse_module);
  }
  const auto children = module->named_children();
  for (const auto& child : children) part.children.push_back(child.value().get());
  parts_.push_back(std::move(part));
  for (const auto& child : children) add(prefix + child.key() + ".", child.value());
}

std::vector<NamedTensor> ModelParameters::trainable() const {
  std::vector<NamedTensor> result;
  for (const NamedTensor& parameter : all_) {
    if (parameter.tensor.requires_grad()) result.push_back(parameter);
  }
  return result;
}

std::vector<bool> ModelParameters::sparse() const {
  std::vector<bool> result;
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].tensor.requires_grad()) result.push_back(sparse_[i]);
  }
  return result;
}

std::vector<NamedTensor> ModelParameters::buffers() const {
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

bool ModelParameters::is_same(const Seen& seen, const at::Tensor& now) {
  if (!now.defined()) return seen.identity == nullptr;
  return seen.identity == now.unsafeGetTensorImpl() && seen.dtype == now.scalar_type() && seen.device == now.device() &&
         seen.requires_grad == now.requires_grad() && now.sizes() == seen.sizes;
}

bool ModelParameters::is_unchanged(const Part& part) const {
  const auto& parameters = Registered::parameters_of(*part.module);
  if (parameters.size() != part.parameters.size()) return false;
  for (size_t i = 0; i < part.parameters.size(); ++i) {
    if (is_same(part.parameters[i], parameters[i].value())) continue;
    if (!is_ignored(part.parameters[i].name)) return false;
  }
  const auto children = part.module->children();
  if (children.size() != part.children.size()) return false;
  for (size_t i = 0; i < children.size(); ++i) {
    if (children[i].get() != part.children[i]) return false;
  }
  return true;
}

void ModelParameters::explain(const Part& part, const std::string& rank) {
  const auto& parameters = Registered::parameters_of(*part.module);
  for (const auto& item : parameters) {
    const std::string name = part.prefix + item.key();
    const Seen* seen = nullptr;
    for (const Seen& candidate : part.parameters) {
      if (candidate.name == name) seen = &candidate;
    }
    if (seen == nullptr) changed(rank, "parameter '" + name + "' was added");
    const at::Tensor& now = item.value();
    if (is_same(*seen, now)) continue;
    if (!now.defined() || seen->identity != now.unsafeGetTensorImpl())
      changed(rank, "parameter '" + name + "' was replaced");
    std::ostringstream text;
    if (seen->dtype != now.scalar_type()) {
      text << "parameter '" << name << "' was cast from " << seen->dtype << " to " << now.scalar_type();
    } else if (seen->device != now.device()) {
      text << "parameter '" << name << "' was moved from " << seen->device << " to " << now.device();
    } else if (now.sizes() != seen->sizes) {
      text << "parameter '" << name << "' was resized from " << c10::IntArrayRef(seen->sizes) << " to " << now.sizes();
    } else {
      text << "parameter '" << name << "' had requires_grad set to " << (now.requires_grad() ? "true" : "false");
    }
    changed(rank, text.str());
  }
  for (const Seen& seen : part.parameters) {
    if (!parameters.contains(seen.name.substr(part.prefix.size())))
      changed(rank, "parameter '" + seen.name + "' was removed");
  }
  for (const auto& child : part.module->named_children()) {
    bool known = false;
    for (const auto* before : part.children) known = known || before == child.value().get();
    if (known) continue;
    const auto inside = child.value()->named_parameters();
    changed(rank, "submodule '" + part.prefix + child.key() + "' was added or replaced" +
                      (inside.is_empty()
                           ? ""
                           : " (with parameter '" + part.prefix + child.key() + "." + inside.front().key() + "')"));
  }
  changed(rank, "a submodule of '" + part.prefix + "' was removed or moved");
}

void ModelParameters::check_unchanged(const std::string& rank) const {
  for (const Part& part : parts_) {
    if (!is_unchanged(part)) explain(part, rank);
  }
}

}  // namespace ddp
