#include "ddprun/ddp/untyped_distributed_data_parallel.h"

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>
#include <typeinfo>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp/parameter_snapshot.h"

namespace ddp {
namespace {

// The parameters and buffers of a model that is given as a list of tensors.
class ListedParameters final : public ModelParameters {
 public:
  /// Throws std::invalid_argument, whose text `rank` begins, when a name is empty or there twice, or a tensor is
  /// undefined or no leaf.
  ListedParameters(ModelTensors model, const DdpOptions& options, const std::string& rank);

  std::string model_name() const override { return model_.name; }
  std::vector<NamedTensor> with_ignored() const override { return model_.parameters; }
  std::vector<NamedTensor> buffers() const override;
  void check_unchanged(const std::string& rank) const override;

 private:
  ModelTensors model_;
  std::vector<ParameterSnapshot> seen_;  // like model_.parameters
};

[[noreturn]] void refuse(const std::string& rank, const std::string& what) {
  throw std::invalid_argument(rank + ": DistributedDataParallel: " + what);
}

void check(const std::vector<NamedTensor>& parameters, const std::string& rank) {
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    if (name.empty()) refuse(rank, "parameter " + std::to_string(i) + " has no name");
    if (!names.insert(name).second) refuse(rank, "there are two parameters named '" + name + "'");
    if (!tensor.defined()) refuse(rank, "parameter '" + name + "' is an undefined tensor");
    if (!tensor.is_leaf()) {
      refuse(rank, "parameter '" + name +
                       "' was computed from other tensors: expected a leaf, whose gradient backward accumulates");
    }
  }
}

ListedParameters::ListedParameters(ModelTensors model, const DdpOptions& options, const std::string& rank)
    : ModelParameters(options), model_(std::move(model)) {
  check(model_.parameters, rank);
  const std::vector<std::string>& sparse = model_.sparse_gradients;
  for (const auto& [name, tensor] : model_.parameters) {
    seen_.emplace_back(name, tensor);
    add_parameter(name, tensor, std::ranges::find(sparse, name) != sparse.end());
  }
  for (const std::string& name : sparse) {
    const auto has_name = [&](const NamedTensor& parameter) { return parameter.name == name; };
    if (std::ranges::any_of(model_.parameters, has_name)) continue;
    refuse(rank, "ModelTensors::sparse_gradients: '" + name + "' is not a parameter of the model");
  }
}

std::vector<NamedTensor> ListedParameters::buffers() const {
  std::vector<NamedTensor> result;
  if (!model_.buffers) return result;
  std::unordered_set<const c10::TensorImpl*> known;
  for (NamedTensor& buffer : model_.buffers()) {
    if (!buffer.tensor.defined() || is_ignored(buffer.name)) continue;
    if (known.insert(buffer.tensor.unsafeGetTensorImpl()).second) result.push_back(std::move(buffer));
  }
  return result;
}

void ListedParameters::check_unchanged(const std::string& rank) const {
  for (size_t i = 0; i < seen_.size(); ++i) {
    const at::Tensor& now = model_.parameters[i].tensor;
    if (!seen_[i].is_same(now) && !is_ignored(seen_[i].name())) seen_[i].refuse(now, rank);
  }
}

}  // namespace
UntypedDistributedDataParallel::UntypedDistributedDataParallel(ModelTensors model, const GroupHandle& group,
                                                               const DdpOptions& options)
    : DdpWrapper(std::make_shared<DdpCore>(
          std::make_unique<ListedParameters>(std::move(model), options, who(group.info())), group, options)) {}

std::vector<at::Tensor> UntypedDistributedDataParallel::after_forward(std::vector<at::Tensor> outputs) {
  const std::type_info& type = outputs.empty() ? typeid(void) : typeid(outputs);
  const std::vector<at::Tensor> replacements = core().after_forward({.tensors = outputs}, type);
  for (size_t i = 0; i < replacements.size(); ++i) {
    if (replacements[i].defined()) outputs[i] = replacements[i];
  }
  return outputs;
}

}  // namespace ddp
