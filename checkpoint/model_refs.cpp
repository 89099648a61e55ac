#include <algorithm>
#include <set>
#include <stdexcept>

#include <ddprun/checkpoint/safetensors_header.h>

#include "ddprun/checkpoint/training_state.h"

namespace ddp {
namespace {

bool is_model_name(const std::string& name) {
  const auto is_allowed = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  return !name.empty() && std::ranges::all_of(name, is_allowed);
}

}  // namespace

ModelRefs::ModelRefs(std::initializer_list<Named> models) : models_(models) {
  std::set<std::string> names;
  for (const auto& [name, model] : models_) {
    if (!is_model_name(name)) {
      throw std::invalid_argument("a model's name in a checkpoint consists of letters, digits, _ and -, but one is " +
                                  safetensors::quote_name(name));
    }
    if (!names.insert(name).second) {
      throw std::invalid_argument("two models have the name " + safetensors::quote_name(name) + ": rename one");
    }
  }
}

}  // namespace ddp
