#include "checkpoint/core/saved_optimizer.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <ddprun/checkpoint/safetensors_header.h>

#include "checkpoint/core/shallow_json.h"

namespace ddp {
namespace {

using nlohmann::json;

// What tells an optimizer from its relatives. Python's files name no class: RAdam's state has Adam's tensors, but not
// all of its hyper-parameters.
struct Traits {
  std::string_view type;
  std::array<std::string_view, 4> hyper_parameters;
  std::array<std::string_view, 4> fields;
};

constexpr std::array kTraits = {
    Traits{"SGD", {"lr", "momentum", "dampening", "nesterov"}, {"momentum_buffer"}},
    Traits{"Adam", {"lr", "betas", "eps", "amsgrad"}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
    Traits{"AdamW", {"lr", "betas", "eps", "amsgrad"}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
    Traits{"Adagrad", {"lr", "lr_decay", "eps"}, {"step", "sum"}}};

const Traits* traits_of(std::string_view type) {
  const auto* found = std::find_if(kTraits.begin(), kTraits.end(), [&](const auto& each) { return each.type == type; });
  return found != kTraits.end() ? found : nullptr;
}

bool has_field(const Traits& traits, std::string_view field) {
  // Where an optimizer has fewer fields, the rest of the array is empty.
  return !field.empty() && std::find(traits.fields.begin(), traits.fields.end(), field) != traits.fields.end();
}

bool is_field(std::string_view type, std::string_view field) {
  if (const auto* traits = traits_of(type)) return has_field(*traits, field);
  // Of an unknown optimizer, any: the code that loads it checks more.
  return field.find('.') == std::string_view::npos;
}

std::string decay_objection(const json& options, std::string_view type) {
  const auto flag = options.find("decoupled_weight_decay");
  if (flag == options.end()) return "";
  if (!flag->is_boolean()) return "its hyper-parameter decoupled_weight_decay is damaged";
  const auto decay = options.find("weight_decay");
  // Without weight decay the two are one.
  if (decay != options.end() && decay->is_number() && decay->get<double>() == 0) return "";
  if (flag->get<bool>() == (type == "AdamW")) return "";
  const std::string is = flag->get<bool>() ? "AdamW" : "Adam";
  return "it holds the state of Python's " + is + " (decoupled_weight_decay is " +
         (flag->get<bool>() ? "True" : "False") + "), but the optimizer is " + std::string(type) +
         ", whose weight decay is another; load it into " + is;
}

}  // namespace

SavedOptimizer parse_saved_optimizer(std::string_view text) {
  try {
    const auto root = parse_shallow_json(text);
    SavedOptimizer saved{.type = root.at("type").get<std::string>(), .groups = {}};
    const auto& groups = root.at("param_groups");
    if (!groups.is_array())
      throw std::invalid_argument("an optimizer's description is damaged: it has no list of groups");
    for (const auto& group : groups) {
      saved.groups.push_back({.parameters = group.at("params").get<std::vector<std::string>>(), .options = group});
    }
    return saved;
  } catch (const json::exception& error) {
    throw std::invalid_argument(std::string("an optimizer's description is damaged: ") + error.what());
  }
}

std::string objection_to(const SavedOptimizer& saved, std::string_view type) {
  if (!saved.type.empty() && saved.type != type) {
    return "it holds the state of " + safetensors::quote_name(saved.type) + ", but the optimizer is " +
           std::string(type);
  }
  const auto* traits = traits_of(type);
  for (const auto& group : saved.groups) {
    std::string lacks;
    for (const auto key : traits->hyper_parameters) {
      if (key.empty() || group.options.contains(key)) continue;
      lacks += (lacks.empty() ? "" : ", ") + std::string(key);
    }
    if (!lacks.empty()) {
      return "it holds no state of " + std::string(type) + ": its hyper-parameters lack " + lacks;
    }
    if (type != "Adam" && type != "AdamW") continue;
    if (auto objection = decay_objection(group.options, type); !objection.empty()) return objection;
  }
  return "";
}

std::set<std::string> optimizer_tensors(const SavedOptimizer& saved, const std::set<std::string>& names) {
  std::set<std::string> found;
  for (const auto& group : saved.groups) {
    for (const auto& parameter : group.parameters) {
      const auto prefix = "state." + parameter + ".";
      for (auto name = names.lower_bound(prefix); name != names.end() && name->starts_with(prefix); ++name) {
        if (is_field(saved.type, std::string_view(*name).substr(prefix.size()))) found.insert(*name);
      }
    }
  }
  return found;
}

}  // namespace ddp
