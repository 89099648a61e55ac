#include "checkpoint/parameter_names.h"

#include <sstream>
#include <stdexcept>

namespace ddp {
namespace {

// The model's tensors are detached: they share the parameter's memory, not its identity.
std::pair<const void*, int64_t> data_of(const at::Tensor& tensor) {
  return {tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset()};
}

}  // namespace

std::string optimizer_tensor_name(const std::string& parameter, const std::string& field) {
  return "state." + parameter + "." + field;
}

ParameterNames::ParameterNames(const TensorMap& model) {
  for (const auto& [name, tensor] : model) names_.emplace(data_of(tensor), name);
}

const std::string* ParameterNames::find(const at::Tensor& parameter) const {
  const auto found = names_.find(data_of(parameter));
  return found != names_.end() ? &found->second : nullptr;
}

const std::string& ParameterNames::of(const at::Tensor& parameter) const {
  const auto* name = find(parameter);
  if (name == nullptr) {
    std::ostringstream shape;
    shape << parameter.sizes();
    throw std::invalid_argument("the optimizer has a parameter that the model does not have (of shape " + shape.str() +
                                "); give the model that the optimizer works on");
  }
  return *name;
}

}  // namespace ddp
