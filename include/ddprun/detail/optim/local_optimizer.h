// An optimizer whose state is in this process. It collects the tensors for each kernel call, stores the state, and
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

/// Describes a tensor of a parameter's state: a float32 scalar, or a tensor of the parameter's dtype.
struct StateField {
  const char* name;
  bool is_step = false;    ///< this is the scalar that counts steps; if there is one, it is the first field
  bool optional = false;   ///< it does not exist for some options or parameters
  bool is_scalar = false;  ///< this is another float32 scalar
  /// Returns the shape of the field for a parameter's shape. Null: the field has the parameter's shape.
  std::vector<int64_t> (*shape)(at::IntArrayRef) = nullptr;

  /// Whether the field is a float32 scalar.
  bool is_number() const { return is_step || is_scalar; }
  /// Returns the shape of the field for a parameter.
  std::vector<int64_t> shape_for(const at::Tensor& parameter) const {
    return is_number() ? std::vector<int64_t>{} : shape ? shape(parameter.sizes()) : parameter.sizes().vec();
  }
};

inline constexpr size_t kMaxStateFields = 4;

/// A parameter's state in the order of the optimizer's fields. Fields that do not exist are undefined.
struct LocalState : torch::optim::OptimizerCloneableParamState<LocalState> {
  std::array<at::Tensor, kMaxStateFields> tensors{};
};

/// The tensors of one kernel call, which have one device and one dtype.
struct FusedBatch {
  c10::Device device;
  c10::ScalarType dtype;
  bool first_step;  ///< meaningful only if prepare_state() determines it
  std::vector<at::Tensor> parameters{};
  std::vector<at::Tensor> gradients{};
  /// One list per field; empty if the field does not exist. With Kernels::kOwn, each list has the size of `parameters`,
  /// and its elements are undefined if the field does not exist.
  std::array<std::vector<at::Tensor>, kMaxStateFields> state{};
  c10::ScalarType first_dtype = dtype;  ///< dtype of the group's first parameter with a gradient
  at::Tensor shared{};                  ///< the result of prepare_step()
  /// The values to restore if found_inf is set on a device: (tensor, copy).
  std::vector<std::pair<at::Tensor, at::Tensor>> before{};
  /// Copies that replace tensors with a memory layout that the kernels do not support: (original, copy).
  std::vector<std::pair<at::Tensor, at::Tensor>> copies{};
};

/// Converts a tensor to the optional tensor that the kernels expect.
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
  /// The kernels that take the step. LibTorch's fused kernels require one memory layout, and divide the gradients by a
  /// scaler's scale. The optimizer's own kernels accept any layout, and require unscaled gradients.
  enum class Kernels { kFused, kOwn };

  LocalOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                 std::unique_ptr<torch::optim::OptimizerOptions> defaults, std::vector<StateField> fields,
                 Kernels kernels = Kernels::kFused);

  void apply_step(const GradientScaling& scaling) override;

  /// Throws std::invalid_argument if the step would be refused: for options out of range, for gradients that the
  /// kernels do not support, and for a state that no longer fits its parameter. Changes nothing.
  void check_step();

  /// Converts the group's options from LibTorch's type to this optimizer's type if necessary, and checks their values.
  virtual void check_group(torch::optim::OptimizerParamGroup& group) const = 0;
  /// Throws std::invalid_argument, as Python does, if the options request a capturable step and parameters with
  /// gradients are on the CPU.
  virtual void check_capturable(const torch::optim::OptimizerParamGroup& group) const;
  /// Creates the missing parts of `state`. If the kernel needs it, returns whether this is the parameter's first step.
  virtual bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                             LocalState& state) const = 0;
  /// With Kernels::kOwn: called before the first batch of a step, with unscaled gradients. Returns the tensor that the
  /// batches share.
  virtual at::Tensor prepare_step() const;
  /// With Kernels::kOwn, `scaling` is empty.
  virtual void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                          const GradientScaling& scaling) const = 0;

  LocalState& state_of(const at::Tensor& parameter);

 private:
  void check_state(const at::Tensor& parameter) const;
  std::vector<FusedBatch> collect(const torch::optim::OptimizerParamGroup& group);
  void take(FusedBatch& batch, const at::Tensor& parameter, LocalState& state) const;
  void add_in_one_layout(FusedBatch& batch, const at::Tensor& parameter, LocalState& state) const;
  void run(const torch::optim::OptimizerOptions& options, FusedBatch& batch, const GradientScaling& scaling) const;
  void unscale(FusedBatch& batch, const GradientScaling& scaling) const;
  const LocalState* find_state(const at::Tensor& parameter) const;

  std::vector<StateField> fields_;
  Kernels kernels_;
};

}  // namespace ddp::optim
