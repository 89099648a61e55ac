// By which names an optimizer's parameters and their state are stored. Not installed.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include <ddprun/checkpoint/safetensors.h>

namespace ddp {

/// Under which name a file holds `field` of the state of `parameter`.
std::string optimizer_tensor_name(const std::string& parameter, const std::string& field);

/// The first of a parameter's names in the model.
class ParameterNames {
 public:
  explicit ParameterNames(const TensorMap& model);

  /// Throws std::invalid_argument when the model does not have `parameter`.
  const std::string& of(const at::Tensor& parameter) const;
  /// The same; null when the model does not have it.
  const std::string* find(const at::Tensor& parameter) const;

 private:
  std::map<std::pair<const void*, int64_t>, std::string> names_;
};

}  // namespace ddp
