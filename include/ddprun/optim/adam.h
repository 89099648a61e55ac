// Adam and AdamW in one kernel call per device and dtype.
#pragma once

#include <string>
#include <vector>

#include <ddprun/optim/local_optimizer.h>
#include <ddprun/optim/options.h>

namespace ddp::optim {

/// torch::optim::Adam on LibTorch's fused kernel: weight decay, AMSGrad, maximize. Steps are counted in float32 scalars
/// on the parameters' device, and a step that found_inf skips is not counted. Reference: Python's torch.optim.Adam with
/// fused=True, bit by bit.
class Adam : public LocalOptimizer {
 public:
  /// Borrows leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit Adam(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamOptions defaults = {});
  explicit Adam(std::vector<at::Tensor> parameters, AdamOptions defaults = {});

  std::string type_name() const override { return "Adam"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

/// Adam with decoupled weight decay (Loshchilov and Hutter 2019); otherwise as Adam.
class AdamW : public LocalOptimizer {
 public:
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamWOptions defaults = {});
  explicit AdamW(std::vector<at::Tensor> parameters, AdamWOptions defaults = {});

  std::string type_name() const override { return "AdamW"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

}  // namespace ddp::optim
