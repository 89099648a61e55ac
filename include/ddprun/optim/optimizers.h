// SGD, Adam, AdamW and Adagrad with one kernel call per device and dtype. Their options are those of torch::optim's
// optimizer of the same name, and `maximize`.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/detail/optim/local_optimizer.h>
#include <ddprun/detail/optim/rate_tensor.h>

namespace ddp::optim {

/// The option that LibTorch's optimizers lack: maximise the objective instead of minimising it.
class MaximizeOption {
 public:
  /// Whether the objective is maximised.
  bool maximize() const { return maximize_; }
  /// The same, for writing.
  bool& maximize() { return maximize_; }

 protected:
  bool maximize_ = false;
};

/// Python's option of Adam and AdamW that allows capturing them in a graph. Here, steps can always be captured. The
/// value is only stored for the exchange with Python.
class CapturableOption {
 public:
  /// Python's value.
  bool capturable() const { return capturable_; }
  /// The same, for writing.
  bool& capturable() { return capturable_; }

 protected:
  bool capturable_ = false;
};

/// The options of torch::optim (`TorchOptions`), `maximize`, and a learning rate that may be a tensor. Copies share
/// that tensor. Archives without `maximize`, which LibTorch writes, mean false.
template <typename Self, typename TorchOptions>
class FusedOptions : public TorchOptions, public MaximizeOption, public RateTensor {
 public:
  using TorchOptions::TorchOptions;
  /// Everything as in `options`, with maximize false.
  FusedOptions(const TorchOptions& options) : TorchOptions(options) {}

  /// A copy of the same class.
  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
  /// Reads the options from an archive of LibTorch's.
  void serialize(torch::serialize::InputArchive& archive) override;
  /// Writes the options into an archive of LibTorch's.
  void serialize(torch::serialize::OutputArchive& archive) const override;

  /// Returns the learning rate. If it is a tensor, the host waits for the device to read it.
  double get_lr() const override { return rate(); }
  /// Sets the learning rate; if it is a tensor, writes into that tensor.
  void set_lr(const double lr) override { set_rate(lr); }
  using RateTensor::lr_tensor;
  /// Makes the learning rate a tensor of one element, which is shared with the caller; an undefined tensor makes it a
  /// number again. Throws std::invalid_argument for any other tensor.
  Self& lr_tensor(const at::Tensor& rate) {
    set_tensor(rate);
    return static_cast<Self&>(*this);
  }

  using MaximizeOption::maximize;
  /// Sets the option, and returns these options for the next setter.
  Self& maximize(bool value) {
    maximize_ = value;
    return static_cast<Self&>(*this);
  }

 protected:
  double& rate_number() override { return static_cast<TorchOptions&>(*this).lr(); }
};

// A setter that returns the derived options, so that calls can be chained, and the getters that it would hide. The API
// reference shows one entry for the three.
#define DDP_OPTIM_OPTION(type, name)  \
  const type& name() const noexcept { \
    return Base::name();              \
  }                                   \
  type& name() noexcept {             \
    return Base::name();              \
  }                                   \
  Self& name(const type& value) {     \
    Base::name() = value;             \
    return static_cast<Self&>(*this); \
  }

/// `SGDOptions(0.1).momentum(0.9)`. Defaults as in Python.
struct SGDOptions : FusedOptions<SGDOptions, torch::optim::SGDOptions> {
  /// The type that setters return.
  using Self = SGDOptions;
  /// The options of LibTorch's optimizer.
  using Base = torch::optim::SGDOptions;
  /// Python's defaults, with this learning rate.
  SGDOptions(double lr = 1e-3) : FusedOptions(lr) {}
  /// Everything as in `options`, with maximize false.
  SGDOptions(const Base& options) : FusedOptions(options) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr)
  /// Factor of the previous step that is added to a step; 0 disables momentum.
  DDP_OPTIM_OPTION(double, momentum)
  /// The part of the gradient that is not added to the momentum.
  DDP_OPTIM_OPTION(double, dampening)
  /// Share of a parameter that is added to its gradient.
  DDP_OPTIM_OPTION(double, weight_decay)
  /// Nesterov's momentum; needs a momentum and no dampening.
  DDP_OPTIM_OPTION(bool, nesterov)
};

/// The common options of Adam and AdamW.
template <typename Derived, typename TorchOptions>
struct AdamFamilyOptions : FusedOptions<Derived, TorchOptions>, CapturableOption {
  /// The type that setters return.
  using Self = Derived;
  /// The options of LibTorch's optimizer.
  using Base = TorchOptions;
  /// Decay of the mean of gradients and of that of their squares.
  using Betas = std::tuple<double, double>;
  /// Python's defaults, with this learning rate.
  AdamFamilyOptions(double lr = 1e-3) : FusedOptions<Derived, TorchOptions>(lr) {}
  /// Everything as in `options`, with maximize false.
  AdamFamilyOptions(const Base& options) : FusedOptions<Derived, TorchOptions>(options) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr)
  /// Decay of the mean of gradients and of that of their squares.
  DDP_OPTIM_OPTION(Betas, betas)
  /// Added to the divisor.
  DDP_OPTIM_OPTION(double, eps)
  /// The part of a parameter that is added to its gradient. With AdamW, this part, times the learning rate, is
  /// subtracted from the parameter instead.
  DDP_OPTIM_OPTION(double, weight_decay)
  /// Divide by the largest mean of squares so far (AMSGrad).
  DDP_OPTIM_OPTION(bool, amsgrad)

  using CapturableOption::capturable;
  /// Sets the option, and returns these options for the next setter.
  Self& capturable(bool value) {
    capturable_ = value;
    return static_cast<Self&>(*this);
  }
};

/// `AdamOptions(1e-3).betas({0.9, 0.99})`. Defaults as in Python.
struct AdamOptions : AdamFamilyOptions<AdamOptions, torch::optim::AdamOptions> {
  using AdamFamilyOptions::AdamFamilyOptions;
};

/// As AdamOptions, with a decoupled weight decay of 0.01.
struct AdamWOptions : AdamFamilyOptions<AdamWOptions, torch::optim::AdamWOptions> {
  using AdamFamilyOptions::AdamFamilyOptions;
};

/// `AdagradOptions(1e-2).lr_decay(1e-3)`. Defaults as in Python.
struct AdagradOptions : FusedOptions<AdagradOptions, torch::optim::AdagradOptions> {
  /// The type that setters return.
  using Self = AdagradOptions;
  /// The options of LibTorch's optimizer.
  using Base = torch::optim::AdagradOptions;
  /// Python's defaults, with this learning rate.
  AdagradOptions(double lr = 1e-2) : FusedOptions(lr) {}
  /// Everything as in `options`, with maximize false.
  AdagradOptions(const Base& options) : FusedOptions(options) {}
  /// Learning rate.
  DDP_OPTIM_OPTION(double, lr)
  /// The learning rate is divided by 1 + lr_decay × the number of previous steps.
  DDP_OPTIM_OPTION(double, lr_decay)
  /// Share of a parameter that is added to its gradient.
  DDP_OPTIM_OPTION(double, weight_decay)
  /// The initial value of the sums of squares.
  DDP_OPTIM_OPTION(double, initial_accumulator_value)
  /// Added to the divisor.
  DDP_OPTIM_OPTION(double, eps)
};

#undef DDP_OPTIM_OPTION

/// These functions throw std::invalid_argument, with the rank and Python's text, for a value that is out of range or
/// not finite. With `may_ascend`, the learning rate may be negative: PyTorch's optimizers check its sign only in their
/// constructor, and schedules may cross zero.
void check_options(const SGDOptions& options, bool may_ascend = false);
/// The same for Adam.
void check_options(const AdamOptions& options, bool may_ascend = false);
/// The same for AdamW.
void check_options(const AdamWOptions& options, bool may_ascend = false);
/// The same for Adagrad.
void check_options(const AdagradOptions& options, bool may_ascend = false);

/// torch::optim::SGD on LibTorch's fused kernel: momentum, dampening, Nesterov, weight decay, maximize. Reference:
/// Python's torch.optim.SGD with fused=True, bit by bit. One difference: if found_inf skips the first step, the
/// momentum is zero afterwards, while Python leaves it uninitialised. With dampening, the next step is then already
/// damped.
class SGD : public LocalOptimizer {
 public:
  /// Refers to leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit SGD(const std::vector<torch::optim::OptimizerParamGroup>& groups, SGDOptions defaults = {});
  /// The same with one group.
  explicit SGD(std::vector<at::Tensor> parameters, SGDOptions defaults = {});

  /// "SGD".
  std::string type_name() const override { return "SGD"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

/// torch::optim::Adam on LibTorch's fused kernel: weight decay, AMSGrad, maximize. Steps are counted in float32 scalars
/// on the parameters' device, and a step that found_inf skips is not counted. Reference: Python's torch.optim.Adam with
/// fused=True, bit by bit.
class Adam : public LocalOptimizer {
 public:
  /// Refers to leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit Adam(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamOptions defaults = {});
  /// The same with one group.
  explicit Adam(std::vector<at::Tensor> parameters, AdamOptions defaults = {});

  /// "Adam".
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
  /// Refers to leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit AdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdamWOptions defaults = {});
  /// The same with one group.
  explicit AdamW(std::vector<at::Tensor> parameters, AdamWOptions defaults = {});

  /// "AdamW".
  std::string type_name() const override { return "AdamW"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

/// torch::optim::Adagrad on LibTorch's fused kernel: learning-rate decay, weight decay, initial accumulator value,
/// maximize. Steps that found_inf skips are not counted. Reference: Python's torch.optim.Adagrad with fused=True, bit
/// by bit; Python refuses CUDA, though LibTorch has the kernel.
class Adagrad : public LocalOptimizer {
 public:
  /// Refers to leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument for
  /// no parameters or values out of range.
  explicit Adagrad(const std::vector<torch::optim::OptimizerParamGroup>& groups, AdagradOptions defaults = {});
  /// The same with one group.
  explicit Adagrad(std::vector<at::Tensor> parameters, AdagradOptions defaults = {});

  /// "Adagrad".
  std::string type_name() const override { return "Adagrad"; }

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

}  // namespace ddp::optim
