// An optimizer whose state is in this process: what SGD, Adam, AdamW and Adagrad share. It collects the tensors that
// one kernel call needs, keeps the state, and counts steps on the parameters' device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <ddprun/optim/fused_optimizer.h>

namespace ddp::optim {

/// A tensor of a parameter's state: a float32 step counter, or a tensor shaped like the parameter.
struct StateField {
  const char* name;
  bool is_step = false;
  bool optional = false;  ///< absent for some options
};

inline constexpr size_t kMostStateFields = 4;

/// A parameter's state in the order of the optimizer's fields; what is absent is undefined.
struct LocalState : torch::optim::OptimizerCloneableParamState<LocalState> {
  std::array<at::Tensor, kMostStateFields> tensors{};
};

/// The tensors of one kernel call: one device, one dtype.
struct FusedBatch {
  c10::Device device;
  c10::ScalarType dtype;
  bool first_step;  ///< only where prepare_state() tells
  std::vector<at::Tensor> parameters{};
  std::vector<at::Tensor> gradients{};
  std::array<std::vector<at::Tensor>, kMostStateFields> state{};  ///< by field; empty where absent
  /// Copies that stand in for tensors whose memory layout the kernels cannot take: (original, copy).
  std::vector<std::pair<at::Tensor, at::Tensor>> copies{};
};

/// As the kernels take an optional tensor.
inline std::optional<at::Tensor> as_optional(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

class LocalOptimizer : public FusedOptimizer {
 public:
  StateTensors parameter_state(const at::Tensor& parameter) const override;
  void check_parameter_state(const at::Tensor& parameter, const StateTensors& state) const override;
  void set_parameter_state(const at::Tensor& parameter, const StateTensors& state) override;

 protected:
  LocalOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 std::unique_ptr<torch::optim::OptimizerOptions> defaults, std::vector<StateField> fields);

  void apply_step(const GradientScaling& scaling) override;

  /// Throws std::invalid_argument when the step would be refused: for options out of range, gradients that the kernels
  /// cannot take, or a state that no longer fits its parameter. Changes nothing.
  void check_step();

  /// Makes the group's options this optimizer's own type, if they are LibTorch's, and checks their values.
  virtual void check_group(torch::optim::OptimizerParamGroup& group) const = 0;
  /// Creates what `state` lacks; returns whether this is the parameter's first step, where the kernel needs to know.
  virtual bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                             LocalState& state) const = 0;
  virtual void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                          const GradientScaling& scaling) const = 0;

  LocalState& state_of(const at::Tensor& parameter);

 private:
  void check_state(const at::Tensor& parameter) const;
  std::vector<FusedBatch> collect(const torch::optim::OptimizerParamGroup& group);
  void run(const torch::optim::OptimizerOptions& options, FusedBatch& batch, const GradientScaling& scaling) const;
  const LocalState* find_state(const at::Tensor& parameter) const;

  std::vector<StateField> fields_;
};

}  // namespace ddp::optim
