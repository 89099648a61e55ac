// The state that an Amp shares with all objects that it returns.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

#include <exception>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <ddprun/amp/opt_level.h>
#include <ddprun/detail/comm/wrapped_parameters.h>

#include "amp/loss_scaler.h"
#include "amp/optimizer_record.h"

namespace torch::nn {
class Module;
}

namespace ddp::amp::detail {

struct AmpState {
  Options options{};
  Properties properties{};
  std::string rank{};  ///< the beginning of error messages
  c10::DeviceType device = c10::kCPU;
  std::unordered_set<const torch::nn::Module*> models{};
  std::vector<std::unique_ptr<OptimizerRecord>> records{};
  std::vector<LossScaler> scalers{};
  std::vector<at::Tensor> unreported{};       ///< per scaler: overflows that delayed checks found; undefined if none
  std::unique_ptr<WrappedParameters> mark{};  ///< marks the optimizers' parameters
  std::exception_ptr failure{};               ///< thrown by a ScaledLoss's destructor; the next call throws it

  OptimizerRecord& record_of(const torch::optim::Optimizer& optimizer) const;
  void throw_failure();
};

/// Updates the parameters if the program has written to their masters.
void before_forward(const AmpState& state);

}  // namespace ddp::amp::detail
