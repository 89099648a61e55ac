// Adagrad in one kernel call per device and dtype.
#pragma once

#include <string>
#include <vector>

#include <ddprun/optim/local_optimizer.h>
#include <ddprun/optim/options.h>

namespace ddp::optim {

/// torch::optim::Adagrad on LibTorch's fused kernel: learning-rate decay, weight decay, initial accumulator value,
/// maximize. Steps that found_inf skips are not counted. Reference: Python's torch.optim.Adagrad with fused=True, bit
/// by bit; Python refuses CUDA, though LibTorch has the kernel.
class Adagrad : public LocalOptimizer {
 public:
  /// Borrows leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit Adagrad(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdagradOptions defaults = {});
  explicit Adagrad(std::vector<at::Tensor> parameters, AdagradOptions defaults = {});

  std::string type_name() const override { return "Adagrad"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

}  // namespace ddp::optim
