// The parameters and buffers of a torch::nn::Module and its submodules.
#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <vector>

#include <ddprun/detail/ddp/model_parameters.h>

#include "ddp/parameter_snapshot.h"

namespace ddp {

/// In registration order, those of submodules after their own module's.
class ModuleParameters final : public ModelParameters {
 public:
  ModuleParameters(std::shared_ptr<torch::nn::Module> module, const DdpOptions& options);

  std::string model_name() const override { return module_->name(); }
  std::vector<NamedTensor> with_ignored() const override;
  std::vector<NamedTensor> buffers() const override;
  /// Throws as well when a submodule was added or replaced.
  void check_unchanged(const std::string& rank) const override;

 private:
  struct Part {
    std::string prefix;
    std::shared_ptr<torch::nn::Module> module;
    std::vector<ParameterSnapshot> parameters;
    std::vector<const torch::nn::Module*> children;
  };

  void add(const std::string& prefix, const std::shared_ptr<torch::nn::Module>& module);
  bool is_unchanged(const Part& part) const;
  [[noreturn]] static void explain(const Part& part, const std::string& rank);

  std::shared_ptr<torch::nn::Module> module_;
  std::vector<Part> parts_;  // every module, pre-order
};

}  // namespace ddp
