#include <torch/nn/module.h>

#include <algorithm>
#include <stdexcept>

#include "checkpoint/core/name_pattern.h"
#include "ddprun/checkpoint/checkpoint.h"

namespace ddp {
namespace {

void require_matches(torch::nn::Module& model, const std::vector<std::string>& patterns) {
  const auto parameters = model.named_parameters();
  for (const auto& pattern : patterns) {
    const auto is_match = [&](const auto& item) { return matches(item.key(), pattern); };
    if (std::any_of(parameters.begin(), parameters.end(), is_match)) continue;
    throw std::invalid_argument("no parameter of the model matches '" + pattern + "'");
  }
}

template <typename Chosen>
std::vector<std::string> freeze(torch::nn::Module& model, Chosen is_chosen) {
  std::vector<std::string> frozen;
  for (const auto& item : model.named_parameters()) {
    if (!is_chosen(item.key()) || !item.value().requires_grad()) continue;
    item.value().set_requires_grad(false);
    frozen.push_back(item.key());
  }
  return frozen;
}

}  // namespace

std::vector<std::string> freeze_layers(AnyModuleRef model, const std::vector<std::string>& patterns) {
  require_matches(model.get(), patterns);
  return freeze(model.get(), [&](const std::string& name) { return matches_any(name, patterns); });
}

std::vector<std::string> freeze_all_but(AnyModuleRef model, const std::vector<std::string>& patterns) {
  require_matches(model.get(), patterns);
  return freeze(model.get(), [&](const std::string& name) { return !matches_any(name, patterns); });
}

std::vector<at::Tensor> trainable_parameters(AnyModuleRef model) {
  std::vector<at::Tensor> trained;
  for (const auto& parameter : model.get().parameters()) {
    if (parameter.requires_grad()) trained.push_back(parameter);
  }
  return trained;
}

}  // namespace ddp
