// An optimizer whose state is in this process: it collects the tensors that one kernel call needs, keeps the state, and
// counts steps on the parameters' device.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/optim/fused_optimizer.h>

namespace ddp::optim {

/// A tensor of a parameter's state: a float32 scalar, or a tensor of the parameter's dtype.
struct StateField {
  const char* name;
  bool is_step = false;    ///< the scalar that counts steps; the first field, if any
  bool optional = false;   ///< absent for some options or parameters
  bool is_scalar = false;  ///< another float32 scalar
  /// The shape for a parameter's shape; null: the parameter's.
  std::vector<int64_t> (*shape)(at::IntArrayRef) = nullptr;

  /// Whether it is a float32 scalar.
  bool is_number() const { return is_step || is_scalar; }
  /// The shape that it has for a parameter.
  std::vector<int64_t> shape_for(const at::Tensor& parameter) const {
    return is_number() ? std::vector<int64_t>{} : shape ? shape(parameter.sizes()) : parameter.sizes().vec();
  }
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
  /// By field; empty where absent. For Kernels::kOwn as long as `parameters`, undefined where absent.
  std::array<std::vector<at::Tensor>, kMostStateFields> state{};
  c10::ScalarType first_dtype = dtype;  ///< of the group's first parameter with a gradient
  at::Tensor shared{};                  ///< what prepare_step() returned
  /// Values to which the step returns if found_inf, on a device, says so: (tensor, copy).
  std::vector<std::pair<at::Tensor, at::Tensor>> before{};
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
  bool has_state(const std::string& name) const override;
  at::Tensor empty_state(const at::Tensor& parameter, const std::string& name) const override;

 protected:
  /// Whose kernels take the step: LibTorch's fused ones, which want one memory layout and divide the gradients by a
  /// scaler's scale, or the optimizer's own, which take any layout and unscaled gradients.
  enum class Kernels { kFused, kOwn };

  LocalOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 std::unique_ptr<torch::optim::OptimizerOptions> defaults, std::vector<StateField> fields,
                 Kernels kernels = Kernels::kFused);

  void apply_step(const GradientScaling& scaling) override;

  /// Throws std::invalid_argument when the step would be refused: for options out of range, gradients that the kernels
  /// cannot take, or a state that no longer fits its parameter. Changes nothing.
  void check_step();

  /// Makes the group's options this optimizer's own type, if they are LibTorch's, and checks their values.
  virtual void check_group(torch::optim::OptimizerParamGroup& group) const = 0;
  /// Throws std::invalid_argument for options that ask for a capturable step where parameters with gradients are on the
  /// CPU, as Python does.
  virtual void check_capturable(const torch::optim::OptimizerParamGroup& group) const;
  /// Creates what `state` lacks; returns whether this is the parameter's first step, where the kernel needs to know.
  virtual bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                             LocalState& state) const = 0;
  /// With Kernels::kOwn: before the first batch of a step, with unscaled gradients; what the batches share.
  virtual at::Tensor prepare_step() const;
  /// With Kernels::kOwn, `scaling` is empty.
  virtual void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                          const GradientScaling& scaling) const = 0;

  LocalState& state_of(const at::Tensor& parameter);

 private:
  void check_state(const at::Tensor& parameter) const;
  std::vector<FusedBatch> collect(const torch::optim::OptimizerParamGroup& group);
  void take(FusedBatch& batch, const at::Tensor& parameter, LocalState& state) const;
  void take_in_one_layout(FusedBatch& batch, const at::Tensor& parameter, LocalState& state) const;
  void run(const torch::optim::OptimizerOptions& options, FusedBatch& batch, const GradientScaling& scaling) const;
  void unscale(FusedBatch& batch, const GradientScaling& scaling) const;
  const LocalState* find_state(const at::Tensor& parameter) const;

  std::vector<StateField> fields_;
  Kernels kernels_;
};

}  // namespace ddp::optim
