#include "checkpoint/core/saved_optimizer.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include <ddprun/checkpoint/safetensors_header.h>

#include "base/joined.h"
#include "checkpoint/core/lbfgs_fields.h"
#include "checkpoint/core/shallow_json.h"

namespace ddp {
namespace {

using nlohmann::json;

// What distinguishes an optimizer from its relatives. Python's files name no class: RAdam's state has Adam's tensors,
// but not all of its hyper-parameters.
struct Traits {
  std::string_view type;
  std::array<std::string_view, 4> hyper_parameters;
  std::array<std::string_view, 4> fields;
  std::string_view foreign = "";  ///< a hyper-parameter of a relative that has all of these too
};

constexpr std::array kTraits = {
    Traits{"SGD", {"lr", "momentum", "dampening", "nesterov"}, {"momentum_buffer"}},
    Traits{"Adam", {"lr", "betas", "eps", "amsgrad"}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
    Traits{"AdamW", {"lr", "betas", "eps", "amsgrad"}, {"step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq"}},
    Traits{"Adagrad", {"lr", "lr_decay", "eps"}, {"step", "sum"}},
    Traits{"RMSprop", {"lr", "alpha", "eps", "centered"}, {"step", "square_avg", "momentum_buffer", "grad_avg"}},
    Traits{"Adadelta", {"lr", "rho", "eps"}, {"step", "square_avg", "acc_delta"}},
    Traits{"Adamax", {"lr", "betas", "eps"}, {"step", "exp_avg", "exp_inf"}, "decoupled_weight_decay"},
    Traits{"NAdam", {"lr", "betas", "eps", "momentum_decay"}, {"step", "mu_product", "exp_avg", "exp_avg_sq"}},
    Traits{"RAdam", {"lr", "betas", "eps", "decoupled_weight_decay"}, {"step", "exp_avg", "exp_avg_sq"}, "amsgrad"},
    Traits{"ASGD", {"lr", "lambd", "alpha", "t0"}, {"step", "eta", "mu", "ax"}},
    Traits{"Rprop", {"lr", "etas", "step_sizes"}, {"step", "prev", "step_size"}},
    Traits{"Adafactor", {"lr", "beta2_decay", "eps", "d"}, {"step", "row_var", "col_var", "variance"}},
    Traits{"Muon", {"lr", "momentum", "ns_coefficients", "ns_steps"}, {"momentum_buffer"}},
    Traits{"Lamb", {"lr", "betas", "grad_averaging", "max_grad_norm"}, {"step", "exp_avg", "exp_avg_sq"}},
    Traits{"Lion", {"lr", "betas", "weight_decay"}, {"exp_avg"}, "eps"},
    Traits{"LBFGS", {"lr", "max_iter", "tolerance_grad", "history_size"}, {}}};

const Traits* traits_of(std::string_view type) {
  const auto* found = std::find_if(kTraits.begin(), kTraits.end(), [&](const auto& each) { return each.type == type; });
  return found != kTraits.end() ? found : nullptr;
}

bool has_field(const Traits& traits, std::string_view field) {
  // Where an optimizer has fewer fields, the rest of the array is empty.
  return !field.empty() && std::find(traits.fields.begin(), traits.fields.end(), field) != traits.fields.end();
}

bool is_field(std::string_view type, std::string_view field) {
  if (type == "LBFGS") type = {};  // its lists have numbered names
  if (const auto* traits = traits_of(type)) return has_field(*traits, field);
  // An unknown optimizer may have any field: the code that loads it checks more.
  return field.find('.') == std::string_view::npos || list_item(field).has_value();
}

std::string weight_decay_conflict(const json& options, std::string_view type) {
  const auto flag = options.find("decoupled_weight_decay");
  if (flag == options.end()) return "";
  if (!flag->is_boolean()) return "its hyper-parameter decoupled_weight_decay is damaged";
  const auto decay = options.find("weight_decay");
  // Without weight decay, Adam and AdamW are the same.
  if (decay != options.end() && decay->is_number() && decay->get<double>() == 0) return "";
  if (flag->get<bool>() == (type == "AdamW")) return "";
  const std::string is = flag->get<bool>() ? "AdamW" : "Adam";
  return "it holds the state of Python's " + is + " (decoupled_weight_decay is " +
         (flag->get<bool>() ? "True" : "False") + "), but the optimizer is " + std::string(type) +
         ", whose weight decay works differently; load it into " + is;
}

}  // namespace

SavedOptimizer parse_saved_optimizer(std::string_view text) {
  try {
    const auto root = parse_shallow_json(text);
    SavedOptimizer saved{.type = root.at("type").get<std::string>(),
                         .groups = {},
                         .is_per_parameter = root.value("per_parameter", false)};
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

std::string type_conflict(const SavedOptimizer& saved, std::string_view type) {
  if (!saved.type.empty() && saved.type != type) {
    return "it holds the state of " + safetensors::quote_name(saved.type) + ", but the optimizer is " +
           std::string(type);
  }
  const auto* traits = traits_of(type);
  for (const auto& group : saved.groups) {
    std::string lacks;
    for (const auto key : traits->hyper_parameters) {
      if (key.empty() || group.options.contains(key)) continue;
      detail::append_item(lacks, key);
    }
    if (!lacks.empty()) {
      return "it holds no state of " + std::string(type) + ": its hyper-parameters lack " + lacks;
    }
    // A file of RAdam or NAdam has one hyper-parameter less, or one more, than the file of a relative.
    const std::string_view foreign =
        type == "RAdam" && group.options.contains("momentum_decay") ? "momentum_decay" : traits->foreign;
    if (!foreign.empty() && group.options.contains(foreign)) {
      return "it holds no state of " + std::string(type) + ": it has the hyper-parameter " + std::string(foreign);
    }
    if (type != "Adam" && type != "AdamW") continue;
    if (auto objection = weight_decay_conflict(group.options, type); !objection.empty()) return objection;
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
