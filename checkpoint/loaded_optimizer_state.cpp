#include <ATen/ops/empty_like.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/optim/fused_optimizer.h>
#include <ddprun/optim/optimizers.h>

#include "base/json_float.h"
#include "checkpoint/core/lbfgs_fields.h"
#include "checkpoint/core/saved_optimizer.h"
#include "checkpoint/lbfgs_state.h"
#include "checkpoint/optimizer_kinds.h"
#include "checkpoint/optimizer_state.h"
#include "checkpoint/regrouped_optimizer.h"
#include "checkpoint/skipped_items.h"

namespace ddp {
namespace {

using nlohmann::json;
using safetensors::quote_name;

[[noreturn]] void fail(const StoredTensors& stored, const std::string& message) {
  throw std::runtime_error(stored.source + ": " + message);
}

std::optional<SavedOptimizer> saved_optimizer(const StoredTensors& stored) {
  const auto text = stored.metadata.find(kOptimizerKey);
  if (text == stored.metadata.end()) return std::nullopt;
  try {
    return parse_saved_optimizer(text->second);
  } catch (const std::invalid_argument&) {
    fail(stored, std::string("the metadata ") + kOptimizerKey + " is damaged");
  }
}

void read_option(const json& stored, bool& value) {
  stored.get_to(value);
}

void read_option(const json& stored, double& value) {
  if (const auto named = named_float(stored)) {
    value = *named;
  } else {
    stored.get_to(value);
  }
}

void read_option(const json& stored, int64_t& value) {
  stored.get_to(value);
}

void read_option(const json& stored, std::string& value) {
  stored.get_to(value);
}

template <typename T>
void read_option(const json& stored, std::optional<T>& value) {
  if (stored.is_null()) {
    value.reset();
  } else {
    read_option(stored, value.emplace());
  }
}

template <typename... Values>
void read_option(const json& stored, std::tuple<Values...>& value) {
  size_t next = 0;
  std::apply([&](Values&... each) { (read_option(stored.at(next++), each), ...); }, value);
}

template <typename Kind>
class Loaded : public LoadedOptimizerState {
 public:
  using States = ska::flat_hash_map<void*, std::unique_ptr<torch::optim::OptimizerParamState>>;

  Loaded(const StoredTensors& stored, const SavedOptimizer& in_file, torch::optim::Optimizer& optimizer,
         const TensorMap& model, const LoadOptions& options)
      : stored_(stored),
        optimizer_(optimizer),
        cast_(options.cast),
        fused_(dynamic_cast<optim::FusedOptimizer*>(&optimizer)) {
    const ParameterNames names(model);
    SavedOptimizer saved;
    try {
      saved = regrouped(in_file, optimizer, names, options.rename);
    } catch (const std::invalid_argument& error) {
      fail(stored, error.what());
    }
    auto& groups = optimizer.param_groups();
    if (saved.groups.size() != groups.size()) {
      fail(stored, "the optimizer has " + std::to_string(groups.size()) + " parameter groups, but the file has " +
                       std::to_string(saved.groups.size()));
    }
    for (size_t i = 0; i < groups.size(); ++i) {
      const auto& keys = saved.groups[i].parameters;
      const auto& parameters = groups[i].params();
      bool fits = keys.size() == parameters.size();
      for (size_t j = 0; fits && j < keys.size(); ++j)
        fits = means_any(keys[j], names.all_of(parameters[j]), options.rename);
      if (!fits) fail(stored, different_group(i, keys, parameters, names, options.rename));
      auto copy = groups[i].options().clone();
      auto& own = static_cast<typename Kind::Options&>(*copy);
      read_options(saved, saved.groups[i].options, own);
      maximize_.push_back(read_maximize(saved.groups[i].options, groups[i].options()));
      capturable_.push_back(read_flag(saved.groups[i].options, "capturable"));
      for (size_t j = 0; j < keys.size(); ++j) read_state(keys[j], parameters[j], own);
      options_.push_back(std::move(copy));
    }
  }

  void apply() override {
    for (size_t i = 0; i < options_.size(); ++i) {
      // In place: the program may hold a reference to them, and they may be of a derived class, whose own members stay.
      auto& current = static_cast<typename Kind::Options&>(optimizer_.param_groups()[i].options());
      Kind::options(static_cast<typename Kind::Options&>(*options_[i]), [&](std::string_view key, auto& value) {
        Kind::options(current, [&](std::string_view current_key, auto& current_value) {
          if constexpr (std::is_same_v<decltype(value), decltype(current_value)>) {
            if (key == current_key) current_value = value;
          }
        });
      });
      auto* given = &optimizer_.param_groups()[i].options();
      if (maximize_[i]) dynamic_cast<optim::MaximizeOption&>(*given).maximize() = *maximize_[i];
      if (auto* own = dynamic_cast<optim::CapturableOption*>(given)) own->capturable() = capturable_[i];
      if (auto* rate = dynamic_cast<optim::RateTensor*>(given)) rate->number_to_tensor();
    }
    if (!fused_) {
      optimizer_.state() = std::move(states_);
      return;
    }
    for (const auto& [parameter, state] : fused_states_) fused_->set_parameter_state(parameter, state);
  }

 private:
  // Python's own files number the parameters instead of naming them, and may name them with a wrapper's prefix.
  static bool means(const std::string& stored, std::string_view name, const NameMap& rename) {
    if (stored.starts_with('#')) return true;
    const auto renamed = rename(stored);
    std::string_view key = renamed;
    for (const std::string_view prefix : {"module.", "_orig_mod.", "module."}) {
      while (key != name && key.starts_with(prefix)) key.remove_prefix(prefix.size());
    }
    return key == name;
  }

  // Describes the first parameter of a group that differs between the file and the optimizer.
  static std::string different_group(size_t index, const std::vector<std::string>& keys,
                                     const std::vector<at::Tensor>& parameters, const ParameterNames& names,
                                     const NameMap& rename) {
    auto text = "parameter group " + std::to_string(index) +
                " has other parameters than the optimizer's (the file lists " + std::to_string(keys.size()) +
                ", the optimizer " + std::to_string(parameters.size());
    for (size_t j = 0; j < std::min(keys.size(), parameters.size()); ++j) {
      if (means_any(keys[j], names.all_of(parameters[j]), rename)) continue;
      return text + "; number " + std::to_string(j) + " is " + quote_name(keys[j]) + " in the file and " +
             quote_name(names.of(parameters[j])) + " in the optimizer)";
    }
    return text + ")";
  }

  static bool means_any(const std::string& stored, const std::vector<std::string>& names, const NameMap& rename) {
    return std::ranges::any_of(names, [&](const std::string& name) { return means(stored, name, rename); });
  }

  void read_options(const SavedOptimizer& saved, const json& values, typename Kind::Options& options) {
    Kind::options(options, [&](const char* key, auto& value) {
      // Python's files name no type, and may lack what C++ has: what they lack stays as it is.
      if (saved.type.empty() && !values.contains(key)) return;
      // torch::optim::RMSprop has neither flag, and files of earlier versions have not.
      const bool is_flag = key == std::string_view("maximize") || key == std::string_view("capturable");
      if (is_flag && !values.contains(key)) {
        read_option(json(false), value);
        return;
      }
      try {
        read_option(values.at(key), value);
      } catch (const json::exception&) {
        fail(stored_, std::string("the metadata ") + kOptimizerKey + " holds no value that " + name() +
                          " can use as its hyper-parameter " + key);
      }
    });
  }

  bool read_flag(const json& values, const char* name) const {
    const auto found = values.find(name);
    if (found == values.end()) return false;
    if (!found->is_boolean()) {
      fail(stored_, std::string("the metadata ") + kOptimizerKey + " has a damaged hyper-parameter " + name);
    }
    return found->template get<bool>();
  }

  // The file's value, if the optimizer has the option.
  std::optional<bool> read_maximize(const json& values, torch::optim::OptimizerOptions& options) {
    const bool maximize = read_flag(values, "maximize");
    if constexpr (std::is_same_v<Kind, ListedKind>) {
      if (dynamic_cast<optim::ListedOptions&>(options).find<bool>("maximize")) return std::nullopt;
    }
    if (dynamic_cast<optim::MaximizeOption*>(&options)) return maximize;
    if (maximize)
      fail(stored_, std::string("it maximizes, which ") + (fused_ ? "" : "torch::optim::") + name() + " cannot" +
                        (fused_ ? "" : "; ddp::optim's can"));
    return std::nullopt;
  }

  std::string name() const { return kind_name<Kind>(optimizer_.param_groups().front().options()); }

  bool has_field(const std::string& field) const {
    if constexpr (std::is_same_v<Kind, LbfgsKind>) {
      return true;  // lbfgs_state() reads the fields that exist
    } else if constexpr (std::is_same_v<Kind, ListedKind>) {
      return fused_->has_state(field);
    } else {
      return std::find(Kind::kFields.begin(), Kind::kFields.end(), field) != Kind::kFields.end();
    }
  }

  void read_state(const std::string& key, const at::Tensor& parameter, const typename Kind::Options& options) {
    const auto prefix = optimizer_tensor_name(key, "");
    bool has_state = false;
    optim::StateTensors tensors;
    for (auto each = stored_.tensors.lower_bound(prefix);
         each != stored_.tensors.end() && each->first.starts_with(prefix); ++each) {
      const auto field = each->first.substr(prefix.size());
      // The state of a parameter "a" is not a state of "a.b".
      if (field.find('.') != std::string::npos && !(std::is_same_v<Kind, LbfgsKind> && list_item(field))) continue;
      if (!has_field(field)) {
        fail(stored_,
             "the optimizer's tensor " + quote_name(each->first) + " does not belong to the state of " + name());
      }
      has_state = true;
      tensors.emplace(field, as_wanted(each->second, parameter));
    }
    if (fused_) {
      try {
        fused_->check_parameter_state(parameter, tensors);
      } catch (const std::invalid_argument& error) {
        fail(stored_, "the optimizer's tensors " + quote_name(prefix) + "* do not fit: " + error.what());
      }
      fused_states_.emplace_back(parameter, std::move(tensors));
      return;
    }
    // A parameter that has had no gradient yet has no state.
    if (!has_state) return;
    if constexpr (std::is_same_v<Kind, LbfgsKind>) {
      read_lbfgs(prefix, tensors, parameter, options);
    } else {
      read_fields(key, parameter, options);
    }
  }

  void read_lbfgs(const std::string& prefix, const optim::StateTensors& tensors, const at::Tensor& parameter,
                  const torch::optim::LBFGSOptions& options) {
    const auto& parameters = optimizer_.param_groups().front().params();
    const bool is_first = parameter.is_same(parameters.front());
    int64_t numel = 0;
    for (const auto& each : parameters) numel += each.numel();
    try {
      if (!is_first) throw std::invalid_argument("LBFGS has a state for its first parameter only");
      states_[parameter.unsafeGetTensorImpl()] = lbfgs_state(tensors, parameter, numel, options.history_size());
    } catch (const std::invalid_argument& error) {
      fail(stored_, "the optimizer's tensors " + quote_name(prefix) + "* do not fit: " + error.what());
    }
  }

  void read_fields(const std::string& key, const at::Tensor& parameter, const typename Kind::Options& options) {
    auto state = std::make_unique<typename Kind::State>();
    Kind::state(*state, options, [&](const char* field, auto& value) {
      const auto name = optimizer_tensor_name(key, field);
      const auto found = stored_.tensors.find(name);
      if (found == stored_.tensors.end()) fail(stored_, "the optimizer's tensor " + quote_name(name) + " is missing");
      read(name, found->second, parameter, value);
    });
    states_[parameter.unsafeGetTensorImpl()] = std::move(state);
  }

  // Step counters are scalars, and stay float32.
  at::Tensor as_wanted(const at::Tensor& stored, const at::Tensor& parameter) const {
    const bool other = stored.is_floating_point() && stored.scalar_type() != parameter.scalar_type();
    return cast_ && other && stored.dim() > 0 ? stored.to(parameter.scalar_type()) : stored;
  }

  void read(const std::string& name, const at::Tensor& raw, const at::Tensor& parameter, at::Tensor& value) {
    const auto stored = as_wanted(raw, parameter);
    if (parameter.sizes() != stored.sizes() || parameter.scalar_type() != stored.scalar_type()) {
      fail(stored_,
           "the optimizer's tensor " + quote_name(name) + " has a different shape or dtype than its parameter");
    }
    if (can_keep(stored, parameter)) {
      value = stored.detach();
      return;
    }
    value = at::empty_like(parameter.detach());
    value.copy_(stored);
  }

  // Whether the state may keep the memory into which it was read. It may not keep a file's mapped memory, nor memory
  // that two tensors of the file share.
  static bool can_keep(const at::Tensor& stored, const at::Tensor& parameter) {
    const auto& storage = stored.storage();
    return storage.resizable() && storage.use_count() == 1 && storage.nbytes() == stored.nbytes() &&
           stored.device() == parameter.device() && stored.strides() == parameter.strides() &&
           parameter.is_non_overlapping_and_dense();
  }

  // Python counts steps in a float32 scalar. Beyond 2^24 that rounds, but there Adam's bias correction is 1 in any
  // case.
  void read(const std::string& name, const at::Tensor& stored, const at::Tensor&, int64_t& value) {
    if (stored.numel() != 1 || stored.dim() != 0 || stored.scalar_type() != at::kFloat) {
      fail(stored_, "the optimizer's tensor " + quote_name(name) + " must be an F32 scalar");
    }
    const auto steps = stored.template item<float>();
    if (!(steps >= 0 && steps < 0x1p62f) || steps != std::floor(steps)) {
      fail(stored_, "the optimizer's tensor " + quote_name(name) + " is not a number of steps");
    }
    value = static_cast<int64_t>(steps);
  }

  const StoredTensors& stored_;
  torch::optim::Optimizer& optimizer_;
  bool cast_;
  optim::FusedOptimizer* fused_;  // null for LibTorch's own
  std::vector<std::pair<at::Tensor, optim::StateTensors>> fused_states_;
  std::vector<std::unique_ptr<torch::optim::OptimizerOptions>> options_;
  std::vector<std::optional<bool>> maximize_;
  std::vector<bool> capturable_;
  States states_;
};

}  // namespace

std::set<std::string> optimizer_tensor_names(const StoredTensors& stored) {
  const auto saved = saved_optimizer(stored);
  if (!saved) return {};
  std::set<std::string> names;
  for (const auto& [name, tensor] : stored.tensors) names.insert(name);
  return optimizer_tensors(*saved, names);
}

std::unique_ptr<LoadedOptimizerState> read_optimizer_state(const StoredTensors& stored,
                                                           torch::optim::Optimizer& optimizer, const TensorMap& model,
                                                           const LoadOptions& options) {
  const auto saved = saved_optimizer(stored);
  if (!saved) {
    const auto is_state = [&](const auto& item) {
      return item.first.starts_with("state.") && model.count(item.first) == 0;
    };
    if (std::ranges::any_of(stored.tensors, is_state)) {
      fail(stored,
           std::string("its tensors are an optimizer's states, but the metadata ") + kOptimizerKey +
               ", which hold the hyper-parameters, are missing: a program that does not know them has written or "
               "changed the file; choose another checkpoint, or load the model alone");
    }
    const auto skipped = list_skipped(stored);
    fail(stored, "it holds no optimizer state; load it for the model alone, or choose a checkpoint with one" +
                     (skipped.empty() ? "" : "; not read: " + skipped));
  }
  for (const auto& [name, what] : stored.skipped) {
    if (!name.starts_with("state.") || model.count(name) != 0) continue;
    fail(stored, "the optimizer's tensor " + quote_name(name) + " cannot be read: it is " + what);
  }
  std::unique_ptr<LoadedOptimizerState> loaded;
  const bool known = with_kind_of(optimizer, [&](auto kind) {
    using Kind = decltype(kind);
    const auto name = kind_name<Kind>(optimizer.param_groups().front().options());
    if (const auto objection = type_conflict(*saved, name); !objection.empty()) fail(stored, objection);
    loaded = std::make_unique<Loaded<Kind>>(stored, *saved, optimizer, model, options);
  });
  if (!known) throw std::invalid_argument(std::string("only the states of ") + kKnown + " can be loaded");
  return loaded;
}

}  // namespace ddp
