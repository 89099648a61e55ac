#include "checkpoint/optimizer_state.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/ops/empty_like.h>
#include <ATen/ops/scalar_tensor.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <nlohmann/json.hpp>

namespace ddp {
namespace {

using nlohmann::json;
using safetensors::quote_name;
using safetensors::TensorEntry;

// Hyper-parameters and state of each optimizer, under Python's names. One list serves saving and loading.
struct SgdKind {
  using Optimizer = torch::optim::SGD;
  using Options = torch::optim::SGDOptions;
  using State = torch::optim::SGDParamState;
  static constexpr const char* kName = "SGD";

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("momentum", options.momentum());
    visit("dampening", options.dampening());
    visit("weight_decay", options.weight_decay());
    visit("nesterov", options.nesterov());
  }
  template <typename Visit>
  static void state(State& state, const Options&, Visit&& visit) {
    visit("momentum_buffer", state.momentum_buffer());
  }
  static constexpr std::array kFields = {"momentum_buffer"};
};

template <typename OptimizerType, typename OptionsType, typename StateType>
struct AdamLikeKind {
  using Optimizer = OptimizerType;
  using Options = OptionsType;
  using State = StateType;

  template <typename Visit>
  static void options(Options& options, Visit&& visit) {
    visit("lr", options.lr());
    visit("betas", options.betas());
    visit("eps", options.eps());
    visit("weight_decay", options.weight_decay());
    visit("amsgrad", options.amsgrad());
  }
  template <typename Visit>
  static void state(State& state, const Options& options, Visit&& visit) {
    visit("step", state.step());
    visit("exp_avg", state.exp_avg());
    visit("exp_avg_sq", state.exp_avg_sq());
    if (options.amsgrad()) visit("max_exp_avg_sq", state.max_exp_avg_sq());
  }
  static constexpr std::array kFields = {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
};

struct AdamKind : AdamLikeKind<torch::optim::Adam, torch::optim::AdamOptions, torch::optim::AdamParamState> {
  static constexpr const char* kName = "Adam";
};
struct AdamWKind : AdamLikeKind<torch::optim::AdamW, torch::optim::AdamWOptions, torch::optim::AdamWParamState> {
  static constexpr const char* kName = "AdamW";
};

constexpr auto kKinds = std::tuple<SgdKind, AdamKind, AdamWKind>{};

// Calls `use` with the kind for which `is_it` says yes; false when there is none.
template <typename IsIt, typename Use>
bool with_kind(IsIt&& is_it, Use&& use) {
  return std::apply([&](auto... kind) { return ((is_it(kind) && (use(kind), true)) || ...); }, kKinds);
}

template <typename Use>
bool with_kind_of(const torch::optim::Optimizer& optimizer, Use&& use) {
  return with_kind(
      [&](auto kind) { return dynamic_cast<const typename decltype(kind)::Optimizer*>(&optimizer) != nullptr; }, use);
}

std::string state_name(const std::string& parameter, const std::string& field) {
  return "state." + parameter + "." + field;
}

// The first of a parameter's names in the model.
class ParameterNames {
 public:
  explicit ParameterNames(const TensorMap& model) {
    for (const auto& [name, tensor] : model) names_.emplace(data_of(tensor), name);
  }

  const std::string& of(const at::Tensor& parameter) const {
    const auto found = names_.find(data_of(parameter));
    if (found == names_.end()) {
      throw std::invalid_argument(
          "the optimizer has a parameter that the model does not have; give the model that the "
          "optimizer works on");
    }
    return found->second;
  }

 private:
  // The model's tensors are detached: they share the parameter's memory, not its identity.
  static std::pair<const void*, int64_t> data_of(const at::Tensor& tensor) {
    return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset()};
  }

  std::map<std::pair<const void*, int64_t>, std::string> names_;
};

struct SavedGroup {
  std::vector<std::string> parameters;
  json options;
};

struct SavedOptimizer {
  std::string type;
  std::vector<SavedGroup> groups;
};

[[noreturn]] void fail(const SafetensorsFile& file, const std::string& message) {
  throw std::runtime_error(file.path().string() + ": " + message);
}

std::optional<SavedOptimizer> parse_saved_optimizer(const SafetensorsFile& file) {
  const auto text = file.header().metadata.find(kOptimizerKey);
  if (text == file.header().metadata.end()) return std::nullopt;
  try {
    const auto root = json::parse(text->second);
    SavedOptimizer saved{.type = root.at("type").get<std::string>(), .groups = {}};
    for (const auto& group : root.at("param_groups")) {
      saved.groups.push_back({.parameters = group.at("params").get<std::vector<std::string>>(), .options = group});
    }
    return saved;
  } catch (const json::exception&) {
    fail(file, std::string("the metadata ") + kOptimizerKey + " is damaged");
  }
}

template <typename Kind>
class Loaded : public LoadedOptimizerState {
 public:
  using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

  Loaded(const SafetensorsFile& file, const SavedOptimizer& saved, torch::optim::Optimizer& optimizer,
         const TensorMap& model)
      : file_(file), optimizer_(optimizer) {
    for (const auto& entry : file.header().tensors) entries_.emplace(entry.name, &entry);
    const ParameterNames names(model);
    auto& groups = optimizer.param_groups();
    if (saved.groups.size() != groups.size()) {
      fail(file, "the optimizer has " + std::to_string(groups.size()) + " parameter groups, but the file has " +
                     std::to_string(saved.groups.size()));
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      std::vector<std::string> parameters;
      for (const auto& parameter : groups[i].params()) parameters.push_back(names.of(parameter));
      if (parameters != saved.groups[i].parameters) {
        fail(file, "parameter group " + std::to_string(i) +
                       " has other parameters than the optimizer's (the file lists " +
                       std::to_string(saved.groups[i].parameters.size()) + ", the optimizer " +
                       std::to_string(parameters.size()) + ")");
      }
      auto options =
          std::make_unique<typename Kind::Options>(static_cast<const typename Kind::Options&>(groups[i].options()));
      read_options(saved.groups[i].options, *options);
      for (const auto& parameter : groups[i].params()) read_state(names.of(parameter), parameter, *options);
      options_.push_back(std::move(options));
    }
    entries_.clear();
  }

  void apply() override {
    for (size_t i = 0; i < options_.size(); ++i) optimizer_.param_groups()[i].set_options(std::move(options_[i]));
    optimizer_.state() = std::move(states_);
  }

 private:
  void read_options(const json& saved, typename Kind::Options& options) {
    try {
      Kind::options(options, [&](const char* key, auto& value) { saved.at(key).get_to(value); });
    } catch (const json::exception&) {
      fail(file_, std::string("the metadata ") + kOptimizerKey + " lacks a hyper-parameter of " + Kind::kName);
    }
  }

  void read_state(const std::string& name, const at::Tensor& parameter, const typename Kind::Options& options) {
    // A parameter that has had no gradient yet has no state.
    const bool has_state = std::any_of(Kind::kFields.begin(), Kind::kFields.end(),
                                       [&](const char* field) { return entries_.count(state_name(name, field)) != 0; });
    if (!has_state) return;
    auto state = std::make_unique<typename Kind::State>();
    Kind::state(*state, options,
                [&](const char* field, auto& value) { read(entry(state_name(name, field)), parameter, value); });
    states_[parameter.unsafeGetTensorImpl()] = std::move(state);
  }

  const TensorEntry& entry(const std::string& name) {
    const auto found = entries_.find(name);
    if (found == entries_.end()) fail(file_, "the optimizer's tensor " + quote_name(name) + " is missing");
    return *found->second;
  }

  void read(const TensorEntry& entry, const at::Tensor& parameter, at::Tensor& value) {
    if (parameter.sizes() != at::IntArrayRef(entry.shape) || parameter.scalar_type() != scalar_type(entry)) {
      fail(file_,
           "the optimizer's tensor " + quote_name(entry.name) + " has another shape or dtype than its parameter");
    }
    value = at::empty_like(parameter.detach());
    value.copy_(file_.read(entry));
  }

  // Python counts steps in a float32 scalar. Beyond 2^24 that rounds, but there Adam's bias correction is 1 in any
  // case.
  void read(const TensorEntry& entry, const at::Tensor&, int64_t& value) {
    if (!entry.shape.empty() || entry.dtype != safetensors::DType::kF32) {
      fail(file_, "the optimizer's tensor " + quote_name(entry.name) + " must be an F32 scalar");
    }
    const auto steps = file_.read(entry).template item<float>();
    if (!(steps >= 0 && steps < 0x1p62f) || steps != std::floor(steps)) {
      fail(file_, "the optimizer's tensor " + quote_name(entry.name) + " is no number of steps");
    }
    value = static_cast<int64_t>(steps);
  }

  const SafetensorsFile& file_;
  torch::optim::Optimizer& optimizer_;
  std::map<std::string, const TensorEntry*> entries_;
  std::vector<std::unique_ptr<typename Kind::Options>> options_;
  States states_;
};

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
  json root;
  const bool known = with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    root["type"] = Kind::kName;
    root["param_groups"] = json::array();
    for (const auto& group : optimizer.param_groups()) {
      auto options = static_cast<const typename Kind::Options&>(group.options());
      json saved = {{"params", json::array()}};
      Kind::options(options, [&](const char* key, auto& value) { saved[key] = value; });
      for (const auto& parameter : group.params()) {
        const auto& name = names.of(parameter);
        saved["params"].push_back(name);
        const auto state = optimizer.state().find(parameter.unsafeGetTensorImpl());
        if (state == optimizer.state().end()) continue;
        Kind::state(static_cast<typename Kind::State&>(*state->second), options,
                    [&](const char* field, auto& value) { store(tensors, state_name(name, field), value); });
      }
      root["param_groups"].push_back(std::move(saved));
    }
  });
  if (!known) throw std::invalid_argument("only the states of torch::optim::SGD, Adam and AdamW can be saved");
  return root.dump();
}

std::set<std::string> optimizer_tensor_names(const SafetensorsFile& file) {
  const auto saved = parse_saved_optimizer(file);
  if (!saved) return {};
  std::set<std::string> possible;
  with_kind([&](auto kind) { return saved->type == decltype(kind)::kName; },
            [&](auto kind) {
              for (const auto& group : saved->groups) {
                for (const auto& parameter : group.parameters) {
                  for (const char* field : decltype(kind)::kFields) possible.insert(state_name(parameter, field));
                }
              }
            });
  std::set<std::string> names;
  for (const auto& entry : file.header().tensors) {
    if (possible.count(entry.name) != 0) names.insert(entry.name);
  }
  return names;
}

std::unique_ptr<LoadedOptimizerState> read_optimizer_state(const SafetensorsFile& file,
                                                           torch::optim::Optimizer& optimizer, const TensorMap& model) {
  const auto saved = parse_saved_optimizer(file);
  if (!saved) fail(file, "it holds no optimizer state; load it for the model alone, or choose a checkpoint with one");
  std::unique_ptr<LoadedOptimizerState> loaded;
  const bool known = with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    if (saved->type != Kind::kName) {
      fail(file, "it holds the state of " + quote_name(saved->type) + ", but the optimizer is " + Kind::kName);
    }
    loaded = std::make_unique<Loaded<Kind>>(file, *saved, optimizer, model);
  });
  if (!known) throw std::invalid_argument("only the states of torch::optim::SGD, Adam and AdamW can be loaded");
  return loaded;
}

}  // namespace ddp
