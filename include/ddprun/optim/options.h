// Options of this folder's optimizers: those of torch::optim's optimizer of the same name, and `maximize`.
#pragma once

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <string>
#include <tuple>
#include <utility>

namespace ddp::optim {

/// The option that LibTorch's optimizers lack: maximise the objective instead of minimising it.
class MaximizeOption {
 public:
  bool maximize() const { return maximize_; }
  bool& maximize() { return maximize_; }

 protected:
  bool maximize_ = false;
};

/// Options that are torch::optim's (`TorchOptions`) and `maximize`, and that keep it when copied, saved and loaded.
/// Archives without it, as LibTorch writes them, mean false.
template <typename Self, typename TorchOptions>
class FusedOptions : public TorchOptions, public MaximizeOption {
 public:
  using TorchOptions::TorchOptions;
  FusedOptions(const TorchOptions& options) : TorchOptions(options) {}

  std::unique_ptr<torch::optim::OptimizerOptions> clone() const override {
    return std::make_unique<Self>(static_cast<const Self&>(*this));
  }
  void serialize(torch::serialize::InputArchive& archive) override;
  void serialize(torch::serialize::OutputArchive& archive) const override;

  using MaximizeOption::maximize;
  Self& maximize(bool value) {
    maximize_ = value;
    return static_cast<Self&>(*this);
  }
};

// A setter that returns the derived options, so that calls can be chained, and the getters that it would hide.
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
  using Self = SGDOptions;
  using Base = torch::optim::SGDOptions;
  SGDOptions(double lr = 1e-3) : FusedOptions(lr) {}
  SGDOptions(const Base& options) : FusedOptions(options) {}
  DDP_OPTIM_OPTION(double, lr)
  DDP_OPTIM_OPTION(double, momentum)
  DDP_OPTIM_OPTION(double, dampening)
  DDP_OPTIM_OPTION(double, weight_decay)
  DDP_OPTIM_OPTION(bool, nesterov)
};

/// What Adam's and AdamW's options have in common.
template <typename Derived, typename TorchOptions>
struct AdamFamilyOptions : FusedOptions<Derived, TorchOptions> {
  using Self = Derived;
  using Base = TorchOptions;
  using Betas = std::tuple<double, double>;
  AdamFamilyOptions(double lr = 1e-3) : FusedOptions<Derived, TorchOptions>(lr) {}
  AdamFamilyOptions(const Base& options) : FusedOptions<Derived, TorchOptions>(options) {}
  DDP_OPTIM_OPTION(double, lr)
  DDP_OPTIM_OPTION(Betas, betas)
  DDP_OPTIM_OPTION(double, eps)
  DDP_OPTIM_OPTION(double, weight_decay)
  DDP_OPTIM_OPTION(bool, amsgrad)
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
  using Self = AdagradOptions;
  using Base = torch::optim::AdagradOptions;
  AdagradOptions(double lr = 1e-2) : FusedOptions(lr) {}
  AdagradOptions(const Base& options) : FusedOptions(options) {}
  DDP_OPTIM_OPTION(double, lr)
  DDP_OPTIM_OPTION(double, lr_decay)
  DDP_OPTIM_OPTION(double, weight_decay)
  DDP_OPTIM_OPTION(double, initial_accumulator_value)
  DDP_OPTIM_OPTION(double, eps)
};

#undef DDP_OPTIM_OPTION

/// Throw std::invalid_argument with Python's text, after the rank, for a value out of range or not finite. With
/// `may_ascend` the learning rate may be negative: PyTorch's optimizers check its sign in their constructor only, and
/// schedules may cross zero.
void check_options(const SGDOptions& options, bool may_ascend = false);
void check_options(const AdamOptions& options, bool may_ascend = false);
void check_options(const AdamWOptions& options, bool may_ascend = false);
void check_options(const AdagradOptions& options, bool may_ascend = false);

}  // namespace ddp::optim
