// The parameters and buffers of a model that is given as a list of tensors.
#pragma once

#include <string>
#include <vector>

#include <ddprun/ddp/untyped_distributed_data_parallel.h>

#include "ddp/parameter_snapshot.h"

namespace ddp {

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

}  // namespace ddp
