// Stochastic gradient descent in one kernel call per device and dtype.
#pragma once

#include <string>
#include <vector>

#include <ddprun/optim/local_optimizer.h>
#include <ddprun/optim/options.h>

namespace ddp::optim {

/// torch::optim::SGD on LibTorch's fused kernel: momentum, dampening, Nesterov, weight decay, maximize. Reference:
/// Python's torch.optim.SGD with fused=True, bit by bit. One difference: a first step that found_inf skips leaves zero
/// momentum, where Python's leaves memory as it was; with dampening, the next step is then a damped one.
class SGD : public LocalOptimizer {
 public:
  /// Borrows leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit SGD(const std::vector<torch::optim::OptimizerParamGroup>& groups, SGDOptions defaults = {});
  explicit SGD(std::vector<at::Tensor> parameters, SGDOptions defaults = {});

  std::string type_name() const override { return "SGD"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

}  // namespace ddp::optim
