#include "checkpoint/optimizer_state.h"

#include <ATen/ops/scalar_tensor.h>
#include <nlohmann/json.hpp>

#include <stdexcept>
#include <utility>

#include <ddprun/optim/fused_optimizer.h>
#include <ddprun/optim/options.h>

#include "checkpoint/optimizer_kinds.h"
#include "checkpoint/parameter_names.h"

namespace ddp {
namespace {

using nlohmann::json;
using safetensors::quote_name;

void store(TensorMap& tensors, const std::string& name, const at::Tensor& value) {
  if (value.defined() && !tensors.emplace(name, value.detach()).second) {
    throw std::invalid_argument("the model has a tensor named " + quote_name(name) + ", as the optimizer's state has");
  }
}

void store(TensorMap& tensors, const std::string& name, int64_t value) {
  store(tensors, name, at::scalar_tensor(static_cast<double>(value), at::kFloat));
}

}  // namespace

std::string save_optimizer_state(const torch::optim::Optimizer& optimizer, const TensorMap& model, TensorMap& tensors) {
  const ParameterNames names(model);
  const auto* fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer);
  json root;
  const bool known = with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    root["type"] = Kind::kName;
    root["param_groups"] = json::array();
    for (const auto& group : optimizer.param_groups()) {
      auto options = static_cast<const typename Kind::Options&>(group.options());
      json saved = {{"params", json::array()}};
      Kind::options(options, [&](const char* key, auto& value) { saved[key] = value; });
      if (const auto* own = dynamic_cast<const optim::MaximizeOption*>(&group.options()))
        saved["maximize"] = own->maximize();
      if (fused) saved["fused"] = true;  // Python's optimizer goes on with the same kernels, so with the same bits
      for (const auto& parameter : group.params()) {
        const auto& name = names.of(parameter);
        saved["params"].push_back(name);
        if (fused) {
          for (const auto& [field, tensor] : fused->parameter_state(parameter))
            store(tensors, optimizer_tensor_name(name, field), tensor);
          continue;
        }
        const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (state == optimizer.state().end()) continue;
        Kind::state(static_cast<typename Kind::State&>(*state->second), options,
                    [&](const char* field, auto& value) { store(tensors, optimizer_tensor_name(name, field), value); });
      }
      root["param_groups"].push_back(std::move(saved));
    }
  });
  if (!known) throw std::invalid_argument(std::string("only the states of ") + kKnown + " can be saved");
  return root.dump();
}

}  // namespace ddp
