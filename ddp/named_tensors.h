// Tensors and names of parameters, apart.
#pragma once

#include <string>
#include <vector>

#include <ddprun/detail/ddp/model_parameters.h>

namespace ddp {

inline std::vector<at::Tensor> tensors_of(const std::vector<NamedTensor>& items) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(items.size());
  for (const NamedTensor& item : items) tensors.push_back(item.tensor);
  return tensors;
}

inline std::vector<std::string> names_of(const std::vector<NamedTensor>& items) {
  std::vector<std::string> names;
  names.reserve(items.size());
  for (const NamedTensor& item : items) names.push_back(item.name);
  return names;
}

}  // namespace ddp
