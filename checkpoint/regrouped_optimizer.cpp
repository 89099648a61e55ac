#include "checkpoint/regrouped_optimizer.h"

#include <torch/optim/optimizer.h>

#include <map>
#include <stdexcept>
#include <string>
#include <utility>

namespace ddp {
namespace {

// Where the file has a parameter.
struct Place {
  std::string key{};
  const SavedGroup* group = nullptr;
};

bool has_same_options(const SavedGroup& left, const SavedGroup& right) {
  auto other = right.options;
  other["params"] = left.options.at("params");
  return left.options == other;
}

}  // namespace

SavedOptimizer regrouped(const SavedOptimizer& saved, const torch::optim::Optimizer& optimizer,
                         const ParameterNames& names, const NameMap& rename) {
  if (!saved.is_per_parameter) return saved;
  std::map<std::string, Place> places;
  for (const auto& group : saved.groups) {
    for (const auto& key : group.parameters) places.emplace(rename(key), Place{.key = key, .group = &group});
  }
  SavedOptimizer result{.type = saved.type, .groups = {}};
  for (const auto& own : optimizer.param_groups()) {
    auto& group = result.groups.emplace_back();
    const SavedGroup* first = nullptr;
    for (const auto& parameter : own.params()) {
      const Place* place = nullptr;
      for (const auto& name : names.all_of(parameter)) {
        if (const auto found = places.find(name); place == nullptr && found != places.end()) place = &found->second;
      }
      if (place == nullptr) return saved;
      if (first == nullptr) first = place->group;
      if (!has_same_options(*first, *place->group)) {
        throw std::invalid_argument(
            "the parameter " + safetensors::quote_name(place->key) + " has other hyper-parameters in the file than " +
            safetensors::quote_name(group.parameters.front()) + ", the first parameter of its group in the optimizer");
      }
      group.parameters.push_back(place->key);
    }
    if (first != nullptr) group.options = first->options;
  }
  return result;
}

}  // namespace ddp
