#include "checkpoint/pt/state_dict.h"

#include <array>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "checkpoint/pt/format_error.h"

namespace ddp::pt {
namespace {

using nlohmann::json;

constexpr std::array<std::string_view, 5> kModelKeys = {"model", "state_dict", "model_state_dict", "net", "module"};
constexpr std::array<std::string_view, 4> kOptimizerKeys = {"optimizer", "optim", "optimizer_state_dict",
                                                            "optimizer_state"};

// A dict, or the attributes of a TorchScript object.
const Value* as_dict(const Value& value) {
  if (value.is(Kind::kDict)) return &value;
  if (value.is(Kind::kObject) && value.object().state.is(Kind::kDict)) return &value.object().state;
  return nullptr;
}

const Value* find(const Value& value, std::string_view key) {
  const auto* dict = as_dict(value);
  return dict != nullptr ? dict->find(key) : nullptr;
}

std::optional<std::string> key_text(const Value& key) {
  if (key.is(Kind::kText) || key.is(Kind::kBytes)) return key.text();
  if (key.is(Kind::kInt)) return std::to_string(key.integer());
  return std::nullopt;
}

// A pickle can refer to one container many times, so that walking it takes exponentially many steps.
class Walker {
 public:
  explicit Walker(std::map<std::string, TensorEntry>& tensors) : tensors_(tensors) {}

  void walk(const Value& value, const std::string& prefix, int depth = 0) {
    constexpr int64_t kMaxSteps = 10'000'000;
    constexpr int kMaxDepth = 100;
    if (++steps_ > kMaxSteps || depth > kMaxDepth) throw FormatError("its containers are nested too deeply");
    if (value.is(Kind::kTensor)) {
      tensors_[prefix] = value.tensor();
      return;
    }
    const auto* dict = as_dict(value);
    if (dict == nullptr) return;
    const auto& items = dict->items();
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      const auto key = key_text(items[i]);
      if (key) walk(items[i + 1], prefix.empty() ? *key : prefix + "." + *key, depth + 1);
    }
  }

 private:
  std::map<std::string, TensorEntry>& tensors_;
  int64_t steps_ = 0;
};

std::optional<json> to_json(const Value& value, int depth = 0) {
  switch (value.kind()) {
    case Kind::kBool:
      return value.boolean();
    case Kind::kInt:
      return value.integer();
    case Kind::kFloat:
      return value.real();
    case Kind::kText:
      return value.text();
    case Kind::kList:
    case Kind::kTuple: {
      auto list = json::array();
      // Hyper-parameters are pairs at most.
      if (depth > 2 || value.items().size() > 16) return std::nullopt;
      for (const auto& item : value.items()) {
        const auto element = to_json(item, depth + 1);
        if (!element) return std::nullopt;
        list.push_back(*element);
      }
      return list;
    }
    default:
      return std::nullopt;
  }
}

// One group's parameters as the file names them, and its hyper-parameters.
struct Group {
  std::vector<std::string> parameters{};
  json options = json::object();
};

[[noreturn]] void wrong_optimizer() {
  throw FormatError("it holds an optimizer's state in a form that is not known");
}

void add_options(const Value& from, json& options) {
  const auto* dict = as_dict(from);
  if (dict == nullptr) wrong_optimizer();
  const auto& items = dict->items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const auto key = key_text(items[i]);
    if (!key || *key == "params") continue;
    if (const auto option = to_json(items[i + 1])) options[*key] = *option;
  }
}

// Python: {'lr': …, 'params': [0, 1, …]}.
Group python_group(const Value& value) {
  const auto* parameters = find(value, "params");
  if (parameters == nullptr || !parameters->is(Kind::kList)) wrong_optimizer();
  Group group;
  for (const auto& parameter : parameters->items()) {
    auto key = key_text(parameter);
    if (!key) wrong_optimizer();
    group.parameters.push_back(std::move(*key));
  }
  add_options(value, group.options);
  return group;
}

// LibTorch: attributes params/0, params/1 …, and options.
Group libtorch_group(const Value& value) {
  Group group;
  for (size_t i = 0;; ++i) {
    const auto* parameter = find(value, "params/" + std::to_string(i));
    if (parameter == nullptr) break;
    auto key = key_text(*parameter);
    if (!key) wrong_optimizer();
    group.parameters.push_back(std::move(*key));
  }
  const auto* options = find(value, "options");
  if (options == nullptr) wrong_optimizer();
  add_options(*options, group.options);
  return group;
}

std::vector<Group> groups_of(const Value& param_groups) {
  std::vector<Group> groups;
  if (param_groups.is(Kind::kList)) {
    for (const auto& group : param_groups.items()) groups.push_back(python_group(group));
    return groups;
  }
  for (size_t i = 0;; ++i) {
    const auto* group = find(param_groups, "param_groups/" + std::to_string(i));
    if (group == nullptr) break;
    groups.push_back(libtorch_group(*group));
  }
  return groups;
}

void add_parameter_state(const Value& state, const std::string& name, StateDict& result) {
  const auto* dict = as_dict(state);
  if (dict == nullptr) wrong_optimizer();
  const auto& items = dict->items();
  for (size_t i = 0; i + 1 < items.size(); i += 2) {
    const auto field = key_text(items[i]);
    if (!field) wrong_optimizer();
    const auto& value = items[i + 1];
    const auto full = "state." + name + "." + *field;
    if (value.is(Kind::kTensor)) {
      result.tensors[full] = value.tensor();
    } else if (value.is(Kind::kInt)) {
      result.scalars[full] = static_cast<double>(value.integer());
    } else if (value.is(Kind::kFloat)) {
      result.scalars[full] = value.real();
    }
    // None: SGD's momentum_buffer before the first step.
  }
}

bool is_optimizer(const Value& value) {
  return find(value, "state") != nullptr && find(value, "param_groups") != nullptr;
}

void add_optimizer(const Value& value, StateDict& result) {
  const auto& state = *find(value, "state");
  json root = {{"type", ""}, {"param_groups", json::array()}};
  size_t number = 0;
  for (auto& group : groups_of(*find(value, "param_groups"))) {
    auto names = json::array();
    for (const auto& parameter : group.parameters) {
      std::string name = "#";
      name += std::to_string(number++);
      names.push_back(name);
      const Value* own = nullptr;
      if (const auto* dict = as_dict(state)) {
        const auto& items = dict->items();
        for (size_t i = 0; i + 1 < items.size(); i += 2) {
          if (key_text(items[i]) == parameter) own = &items[i + 1];
        }
      }
      if (own != nullptr) add_parameter_state(*own, name, result);
    }
    group.options["params"] = std::move(names);
    root["param_groups"].push_back(std::move(group.options));
  }
  result.metadata[kOptimizerMetadata] = root.dump(-1, ' ', true, json::error_handler_t::replace);
}

}  // namespace

StateDict find_state(const Value& root) {
  StateDict result;
  Walker walker(result.tensors);
  if (is_optimizer(root)) {
    add_optimizer(root, result);
    return result;
  }
  const Value* optimizer = nullptr;
  for (const auto key : kOptimizerKeys) {
    const auto* value = find(root, key);
    if (optimizer == nullptr && value != nullptr && is_optimizer(*value)) optimizer = value;
  }
  for (const auto key : kModelKeys) {
    const auto* value = find(root, key);
    if (value == nullptr || as_dict(*value) == nullptr) continue;
    // A module may well have a child named `model`: then its tensors are not all below it.
    if (root.is(Kind::kObject)) continue;
    walker.walk(*value, "");
    if (!result.tensors.empty()) break;
  }
  if (result.tensors.empty() && optimizer == nullptr) walker.walk(root, "");
  if (result.tensors.empty() && optimizer == nullptr) {
    throw FormatError("it holds neither a model's state dict nor an optimizer's");
  }
  if (optimizer != nullptr) add_optimizer(*optimizer, result);
  return result;
}

}  // namespace ddp::pt
