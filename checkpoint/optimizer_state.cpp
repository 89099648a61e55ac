#include "checkpoint/optimizer_state.h"

#include <ATen/ops/scalar_tensor.h>
#include <c10/util/Type.h>
#include <nlohmann/json.hpp>

#include <optional>
#include <sstream>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <ddprun/optim/fused_optimizer.h>
#include <ddprun/optim/optimizers.h>

#include "base/json_float.h"
#include "checkpoint/lbfgs_state.h"
#include "checkpoint/optimizer_kinds.h"

namespace ddp {
namespace {

using nlohmann::json;
using safetensors::quote_name;

void store(TensorMap& tensors, const std::string& name, const at::Tensor& value) {
  if (!value.defined()) return;
  const auto [found, is_new] = tensors.emplace(name, value.detach());
  // Modules list a tied weight under each of its names, so LibTorch's optimizers may have it twice.
  const bool is_same = found->second.is_alias_of(value) || (value.dim() == 0 && found->second.equal(value));
  if (!is_new && !is_same) {
    throw std::invalid_argument("the model and the optimizer's state both have a tensor named " + quote_name(name));
  }
}

void store(TensorMap& tensors, const std::string& name, int64_t value) {
  store(tensors, name, at::scalar_tensor(static_cast<double>(value), at::kFloat));
}

// A hyper-parameter as JSON. Infinities and NaN become strings.
json to_option(bool value) {
  return value;
}

json to_option(double value) {
  return json_float<json>(value);
}

json to_option(int64_t value) {
  return value;
}

json to_option(const std::string& value) {
  return value;
}

template <typename T>
json to_option(const std::optional<T>& value) {
  return value ? to_option(*value) : json();
}

template <typename... Values>
json to_option(const std::tuple<Values...>& value) {
  return std::apply([](const Values&... each) { return json::array({to_option(each)...}); }, value);
}

}  // namespace

std::string optimizer_title(const std::string& name) {
  return name.empty() ? "the optimizer" : "the optimizer " + quote_name(name);
}

void check_optimizer(const torch::optim::Optimizer& optimizer, const TensorMap& model, const std::string& title) {
  const auto& groups = optimizer.param_groups();
  bool known = !groups.empty() && with_kind_of(optimizer, [&](auto kind) {
    const auto is_same = [&](const auto& group) {
      return group.has_options() && is_of_kind<decltype(kind)>(group.options(), groups.front().options());
    };
    for (size_t i = 0; i < groups.size(); ++i) {
      if (is_same(groups[i])) continue;
      throw std::invalid_argument(title + " cannot be saved: its group " + std::to_string(i) +
                                  " has options of another class than its first group");
    }
  });
  if (!known) {
    throw std::invalid_argument(title + " cannot be saved: it is a " + c10::demangle(typeid(optimizer).name()) +
                                ", but only the states of " + kKnown + " can be saved under Python's names; leave it " +
                                "out of the optimizers and give it as .shared = {{\"optimizer\", optimizer}}, which " +
                                "keeps what it saves itself");
  }
  const ParameterNames names(model);
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& parameters = groups[i].params();
    for (size_t j = 0; j < parameters.size(); ++j) {
      if (parameters[j].defined() && names.find(parameters[j]) != nullptr) continue;
      std::ostringstream shape;
      if (parameters[j].defined()) shape << " of shape " << parameters[j].sizes();
      throw std::invalid_argument(
          title + " cannot be saved: its parameter " + std::to_string(j) + " of group " + std::to_string(i) +
          shape.str() + " is not among the model's (" + std::to_string(model.size()) +
          " tensors); give the model that it works on, or, of several models, each with a name: .model = "
          "{{\"generator\", generator}, {\"discriminator\", discriminator}}");
    }
  }
}

std::string save_optimizer_state(const torch::optim::Optimizer& optimizer, const TensorMap& model, TensorMap& tensors,
                                 const std::vector<std::string>& order, const std::string& title, StateOf of) {
  check_optimizer(optimizer, model, title);
  const ParameterNames names(model, order);
  const auto* fused = dynamic_cast<const optim::FusedOptimizer*>(&optimizer);
  if (fused != nullptr && fused->is_state_divided() && of == StateOf::kAllRanks) {
    throw std::invalid_argument(
        title + " cannot be saved by one rank: each rank keeps the state of different parameters; " +
        "leave CheckpointOptions::sharded out, or let every rank call consolidate_state(0) " + "after the last step");
  }
  json root;
  with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    root["type"] = kind_name<Kind>(optimizer.param_groups().front().options());
    root["param_groups"] = json::array();
    for (const auto& group : optimizer.param_groups()) {
      const auto copy = group.options().clone();
      auto& options = static_cast<typename Kind::Options&>(*copy);
      if (auto* rate = dynamic_cast<optim::RateTensor*>(copy.get())) rate->tensor_to_number();
      json saved = {{"params", json::array()}};
      Kind::options(options, [&](const char* key, auto& value) { saved[key] = to_option(value); });
      if (const auto* own = dynamic_cast<const optim::MaximizeOption*>(&group.options()))
        saved["maximize"] = own->maximize();
      if (const auto* own = dynamic_cast<const optim::CapturableOption*>(&group.options()))
        saved["capturable"] = own->capturable();
      if (fused && !std::is_same_v<Kind, ListedKind>)
        saved["fused"] = true;  // Python's optimizer continues with the same kernels, so with the same bits
      for (const auto& parameter : group.params()) {
        const auto& name = names.of(parameter);
        saved["params"].push_back(name);
        if (fused) {
          const bool is_whole = of == StateOf::kAllRanks;
          for (const auto& [field, tensor] :
               is_whole ? fused->parameter_state(parameter) : fused->kept_state(parameter))
            store(tensors, optimizer_tensor_name(name, field), tensor);
          continue;
        }
        const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (state == optimizer.state().end()) continue;
        auto& own = static_cast<typename Kind::State&>(*state->second);
        const auto store_field = [&](const std::string& field, const auto& value) {
          store(tensors, optimizer_tensor_name(name, field), value);
        };
        if constexpr (std::is_same_v<Kind, LbfgsKind>) {
          for (const auto& [field, tensor] : lbfgs_tensors(own)) store_field(field, tensor);
        } else {
          Kind::state(own, options, store_field);
        }
      }
      root["param_groups"].push_back(std::move(saved));
    }
  });
  return root.dump();
}

std::string optimizer_tensor_name(const std::string& parameter, const std::string& field) {
  return "state." + parameter + "." + field;
}

// The model's tensors are detached: they share the parameter's memory, not its identity.
ParameterNames::Key ParameterNames::key_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec()};
}

ParameterNames::ParameterNames(const TensorMap& model, const std::vector<std::string>& order) {
  std::set<std::string> known;
  for (const auto& name : order) {
    const auto found = model.find(name);
    if (found == model.end() || !known.insert(name).second) continue;
    names_[key_of(found->second)].push_back(name);
  }
  for (const auto& [name, tensor] : model) {
    if (!known.contains(name)) names_[key_of(tensor)].push_back(name);
  }
}

const std::string* ParameterNames::find(const at::Tensor& parameter) const {
  const auto found = names_.find(key_of(parameter));
  return found != names_.end() ? &found->second.front() : nullptr;
}

const std::vector<std::string>& ParameterNames::all_of(const at::Tensor& parameter) const {
  const auto found = names_.find(key_of(parameter));
  if (found != names_.end()) return found->second;
  std::ostringstream shape;
  shape << parameter.sizes();
  throw std::invalid_argument("the optimizer has a parameter that the model does not have (of shape " + shape.str() +
                              "); give the model that the optimizer works on");
}

const std::string& ParameterNames::of(const at::Tensor& parameter) const {
  return all_of(parameter).front();
}

}  // namespace ddp
