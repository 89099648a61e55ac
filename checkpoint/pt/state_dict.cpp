#include "checkpoint/pt/state_dict.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_float.h"
#include "checkpoint/pt/format_error.h"
#include "checkpoint/pt/option_json.h"
#include "checkpoint/pt/tensor_walk.h"

namespace ddp::pt {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kModelKeys = {"model", "state_dict", "model_state_dict", "net", "module"};
constexpr std::array<std::string_view, 6> kOptimizerKeys = {
    "optimizer", "optim", "optimizer_state_dict", "optimizer_state", "optimizer_states", "optimizers"};

const Value* find(const Value& value, std::string_view key) {
  const auto* dict = as_dict(value);
  return dict != nullptr ? dict->find(key) : nullptr;
}

// One group's parameters as the file names them, and its hyper-parameters.
struct Group {
  std::vector<std::string> parameters{};
  json options = json::object();
  std::vector<std::string> odd{};  ///< keys of options that are not read
};

// The optimizer's state has an unknown form, as a whole or in part.
class UnknownOptimizerForm : public FormatError {
 public:
  using FormatError::FormatError;
};

[[noreturn]] void wrong_optimizer() {
  throw UnknownOptimizerForm("it holds an optimizer's state in a form that is not known");
}

// The values of a dict by the texts of their keys. The last of equal keys counts, as in Python, where 0 and "0" differ.
std::map<std::string, const Value*> index_of(const Value& dict, Budget& budget) {
  std::map<std::string, const Value*> index;
  const auto& items = dict.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    auto key = key_text(items[i]);
    if (!key) continue;
    budget.spend(key->size());
    const auto [known, is_new] = index.try_emplace(std::move(*key), &items[i + 1]);
    if (is_new) continue;
    if ((known->second - 1)->kind() != items[i].kind()) {
      throw UnknownOptimizerForm("it holds an optimizer's state with two keys that both read " +
                                 safetensors::quote_name(known->first));
    }
    known->second = &items[i + 1];
  }
  return index;
}

// `odd` receives the keys whose values do not look like any known hyper-parameter.
void add_options(const Value& from, json& options, std::vector<std::string>& odd, Budget& budget,
                 const ScalarReader& read_scalar) {
  const auto* dict = as_dict(from);
  if (dict == nullptr) wrong_optimizer();
  for (const auto& [key, value] : index_of(*dict, budget)) {
    if (key == "params") continue;
    if (value->is(Kind::kTensor) || value->is(Kind::kForeign)) {
      // Python's `lr=torch.tensor(0.1)`. A value that is not a number (or is one of NumPy's) becomes null, so that it
      // does not look like an absent one.
      const auto number = read_scalar && value->is(Kind::kTensor) ? read_scalar(value->tensor()) : std::nullopt;
      options[key] = number ? json_float<json>(*number) : json();
      continue;
    }
    if (auto option = option_json(*value, budget)) {
      options[key] = std::move(*option);
    } else if (!value->is(Kind::kNone)) {
      odd.push_back(key);
    }
  }
}

void add_parameter(const Value& parameter, Group& group, Budget& budget) {
  auto key = key_text(parameter);
  if (!key) wrong_optimizer();
  budget.spend(key->size());
  group.parameters.push_back(std::move(*key));
}

// Python: {'lr': …, 'params': [0, 1, …]}.
Group python_group(const Value& value, Budget& budget, const ScalarReader& read_scalar) {
  const auto* parameters = find(value, "params");
  if (parameters == nullptr || !parameters->is(Kind::kList)) wrong_optimizer();
  Group group;
  for (const auto& parameter : parameters->items()) add_parameter(parameter, group, budget);
  add_options(value, group.options, group.odd, budget, read_scalar);
  return group;
}

// LibTorch: attributes params/0, params/1 …, and options.
Group libtorch_group(const Value& value, Budget& budget) {
  const auto* dict = as_dict(value);
  if (dict == nullptr) wrong_optimizer();
  const auto attributes = index_of(*dict, budget);
  Group group;
  for (size_t i = 0;; ++i) {
    const auto parameter = attributes.find("params/" + std::to_string(i));
    if (parameter == attributes.end()) break;
    add_parameter(*parameter->second, group, budget);
  }
  const auto options = attributes.find("options");
  if (options == attributes.end()) wrong_optimizer();
  add_options(*options->second, group.options, group.odd, budget, {});
  return group;
}

std::vector<Group> groups_of(const Value& param_groups, Budget& budget, const ScalarReader& read_scalar) {
  std::vector<Group> groups;
  if (param_groups.is(Kind::kList)) {
    for (const auto& group : param_groups.items()) groups.push_back(python_group(group, budget, read_scalar));
    return groups;
  }
  const auto* dict = as_dict(param_groups);
  if (dict == nullptr) return groups;
  const auto attributes = index_of(*dict, budget);
  for (size_t i = 0;; ++i) {
    const auto group = attributes.find("param_groups/" + std::to_string(i));
    if (group == attributes.end()) return groups;
    groups.push_back(libtorch_group(*group->second, budget));
  }
}

// A list of LBFGS's. None means a tensor that does not exist yet.
bool is_tensor_list(const Value& value) {
  return value.is(Kind::kList) && std::ranges::all_of(value.items(), [](const Value& item) {
           return item.is(Kind::kTensor) || item.is(Kind::kNone);
         });
}

void add_parameter_state(const Value& state, const std::string& name, StateDict& result, Budget& budget) {
  const auto* dict = as_dict(state);
  if (dict == nullptr) wrong_optimizer();
  for (const auto& [field, value] : index_of(*dict, budget)) {
    const auto full = "state." + name + "." + field;
    if (value->is(Kind::kTensor)) {
      result.tensors[full] = value->tensor();
    } else if (value->is(Kind::kInt)) {
      result.scalars[full] = static_cast<double>(value->integer());
    } else if (value->is(Kind::kFloat)) {
      result.scalars[full] = value->real();
    } else if (value->is(Kind::kOtherTensor) || value->is(Kind::kForeign)) {
      budget.spend(full.size() + value->text().size());
      result.skipped[full] = value->text();
    } else if (is_tensor_list(*value)) {
      const auto& items = value->items();
      for (size_t i = 0; i < items.size(); ++i) {
        budget.spend(full.size());
        if (items[i].is(Kind::kTensor)) result.tensors[full + "." + std::to_string(i)] = items[i].tensor();
      }
    } else if (!value->is(Kind::kNone)) {  // SGD's momentum_buffer before the first step is None
      budget.spend(full.size());
      result.left_out[full] = "neither a tensor nor a number";
    }
  }
}

void add_optimizer(const Value& value, StateDict& result, Budget& budget, const ScalarReader& read_scalar) {
  const auto* state = as_dict(*find(value, "state"));
  const auto states = state != nullptr ? index_of(*state, budget) : std::map<std::string, const Value*>{};
  std::set<std::string> strangers;
  for (const auto& [parameter, own] : states) strangers.insert(parameter);
  json root = {{"type", ""}, {"param_groups", json::array()}};
  size_t number = 0;
  for (auto& group : groups_of(*find(value, "param_groups"), budget, read_scalar)) {
    auto names = json::array();
    for (const auto& parameter : group.parameters) {
      std::string name = "#";
      name += std::to_string(number++);
      names.push_back(name);
      const auto own = states.find(parameter);
      if (own == states.end()) continue;
      add_parameter_state(*own->second, name, result, budget);
      strangers.erase(parameter);
    }
    for (const auto& key : group.odd) {
      result.left_out["param_groups." + std::to_string(root["param_groups"].size()) + "." + key] =
          "not a number, a text or a list of them";
    }
    group.options["params"] = std::move(names);
    root["param_groups"].push_back(std::move(group.options));
  }
  for (const auto& parameter : strangers) result.left_out["state." + parameter] = "state of no parameter in its groups";
  result.metadata[kOptimizerMetadata] = root.dump(-1, ' ', true, json::error_handler_t::replace);
}

// Lists objects beside the model and the optimizer, since the user may look for them.
void list_foreign(const Value& root, StateDict& result, Budget& budget) {
  if (!root.is(Kind::kDict)) return;
  const auto& items = root.items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const auto key = key_text(items[i]);
    if (!key || !items[i + 1].is(Kind::kForeign) || result.tensors.contains(*key)) continue;
    budget.spend(key->size() + items[i + 1].text().size());
    result.skipped.emplace(*key, items[i + 1].text());
  }
}

// Throws if `root` is a tensor or an object instead of a dict of tensors.
void refuse_root(const Value& root) {
  if (root.is(Kind::kForeign)) {
    throw FormatError("it is " + root.text() + ": save a state_dict() in Python instead of the whole object");
  }
  if (root.is(Kind::kTensor) || root.is(Kind::kOtherTensor)) {
    throw FormatError("it is a tensor without a name: save a dict that has it, such as {'weight': tensor}");
  }
}

// Adds the whole state of the optimizer. If its form is unknown, adds only its name, as skipped.
void add_optimizer_beside_model(std::string_view key, const Value& value, StateDict& result, Budget& budget,
                                const ScalarReader& read_scalar) {
  StateDict optimizer;
  try {
    add_optimizer(value, optimizer, budget, read_scalar);
  } catch (const UnknownOptimizerForm&) {
    result.skipped[std::string(key)] = "an optimizer's state in a form that is not known";
    return;
  }
  const auto check = [&](const auto& names) {
    for (const auto& [name, ignored] : names) {
      if (!result.tensors.contains(name) && !result.skipped.contains(name)) continue;
      throw FormatError("its model and its optimizer's state both have a tensor named " +
                        safetensors::quote_name(name) + ": rename one of them");
    }
  };
  check(optimizer.tensors);
  check(optimizer.scalars);
  check(optimizer.skipped);
  result.tensors.merge(optimizer.tensors);
  result.scalars.merge(optimizer.scalars);
  result.metadata.merge(optimizer.metadata);
  result.skipped.merge(optimizer.skipped);
  result.left_out.merge(optimizer.left_out);
}

}  // namespace

std::optional<json> option_json(const Value& value, Budget& budget, int depth) {
  budget.spend(value.is(Kind::kText) ? value.text().size() : 0);
  switch (value.kind()) {
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer();
    case Kind::kFloat:
      return json_float<json>(value.real());
    case Kind::kText:
      return value.text();
    case Kind::kList:
    case Kind::kTuple: {
      auto list = json::array();
      if (depth > 2) return std::nullopt;
      for (const auto& item : value.items()) {
        // Adafactor's eps is (None, 0.001).
        const auto element = item.is(Kind::kNone) ? json() : option_json(item, budget, depth + 1);
        if (!element) return std::nullopt;
        list.push_back(*element);
      }
      return list;
    }
    default:
      return std::nullopt;
  }
}

std::span<const std::string_view> model_keys() {
  return kModelKeys;
}

bool is_model_key(std::string_view key) {
  return std::ranges::find(kModelKeys, key) != std::end(kModelKeys);
}

const Value& sole_item(const Value& value) {
  const bool is_list = value.is(Kind::kList) || value.is(Kind::kTuple);
  return is_list && value.items().size() == 1 ? value.items().front() : value;
}

bool is_optimizer(const Value& value) {
  return find(value, "state") != nullptr && find(value, "param_groups") != nullptr;
}

StateDict find_state(const Value& root, const ScalarReader& read_scalar) {
  StateDict result;
  Budget budget;
  refuse_root(root);
  if (is_optimizer(root)) {
    add_optimizer(root, result, budget, read_scalar);
    return result;
  }
  const auto is_empty = [&] { return result.tensors.empty() && result.skipped.empty(); };
  const Value* optimizer = nullptr;
  std::string_view optimizer_key;
  for (const auto key : kOptimizerKeys) {
    const auto* value = find(root, key);
    if (optimizer != nullptr || value == nullptr || !is_optimizer(sole_item(*value))) continue;
    optimizer = &sole_item(*value);
    optimizer_key = key;
  }
  for (const auto key : kModelKeys) {
    const auto* value = find(root, key);
    if (value == nullptr || as_dict(*value) == nullptr) continue;
    // A module may well have a child named `model`: then its tensors are not all below it.
    if (root.is(Kind::kObject)) continue;
    add_tensors(*value, result, budget);
    if (result.tensors.empty()) continue;
    result.found_under = key;
    break;
  }
  if (is_empty() && optimizer == nullptr) add_tensors(root, result, budget);
  if (is_empty() && optimizer == nullptr) {
    throw FormatError("it holds neither a model's state dict nor an optimizer's");
  }
  list_foreign(root, result, budget);
  result.entries = entries_with_tensors(root);
  std::erase(result.entries, result.found_under);
  if (optimizer == nullptr) return result;
  if (is_empty()) {
    add_optimizer(*optimizer, result, budget, read_scalar);
  } else {
    add_optimizer_beside_model(optimizer_key, *optimizer, result, budget, read_scalar);
  }
  return result;
}

}  // namespace ddp::pt
