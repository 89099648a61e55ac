#include "ddprun/detail/ddp/model_parameters.h"

namespace ddp {

ModelParameters::ModelParameters(const DdpOptions& options) : ignored_(options.ignored.begin(), options.ignored.end()) {
  ignored_.insert(options.delayed.names.begin(), options.delayed.names.end());
}

void ModelParameters::add_parameter(const std::string& name, const at::Tensor& tensor, bool has_sparse_gradients) {
  if (is_ignored(name) || !known_.insert(tensor.unsafeGetTensorImpl()).second) return;
  all_.push_back({name, tensor});
  sparse_.push_back(has_sparse_gradients);
}

std::vector<NamedTensor> ModelParameters::trainable() const {
  std::vector<NamedTensor> result;
  for (const NamedTensor& parameter : all_) {
    if (parameter.tensor.requires_grad()) result.push_back(parameter);
  }
  return result;
}

std::vector<bool> ModelParameters::sparse() const {
  std::vector<bool> result;
  for (size_t i = 0; i < all_.size(); ++i) {
    if (all_[i].tensor.requires_grad()) result.push_back(sparse_[i]);
  }
  return result;
}

}  // namespace ddp
