// The common parts of ddprun's own optimizers: options that can be listed with Python's names, and the class template
// of the optimizers.
#pragma once

#include <torch/optim/optimizer.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include <ddprun/detail/optim/local_optimizer.h>
#include <ddprun/detail/optim/rate_tensor.h>

namespace ddp::optim {

/// A pointer to the value of an option.
using OptionValue =
    std::variant<double*, bool*, int64_t*, std::tuple<double, double>*, std::tuple<double, double, double>*,
                 std::tuple<std::optional<double>, double>*, std::optional<std::string>*>;

/// Returns "lr" and "eps" for the members "lr_, eps_".
std::vector<std::string> option_names(std::string_view members);

/// Pairs each name with a pointer to its value.
template <typename... Values>
std::vector<std::pair<const char*, OptionValue>> listed_options(const std::vector<std::string>& names,
                                                                const std::tuple<Values&...>& values) {
  size_t next = 0;
  return std::apply(
      [&](Values&... each) {
        return std::vector<std::pair<const char*, OptionValue>>{{names[next++].c_str(), OptionValue(&each)}...};
      },
      values);
}

/// Options that can be listed, so that archives, checkpoints, schedules and LARC do not depend on each class.
class ListedOptions {
 public:
  virtual ~ListedOptions() = default;
  /// Returns Python's name of the optimizer.
  virtual const char* optimizer_name() const = 0;
  /// Returns all options with Python's names.
  virtual std::vector<std::pair<const char*, OptionValue>> list() = 0;
  /// Throws std::invalid_argument, with the rank and Python's text, for a value that Python's constructor refuses or
  /// that is not finite. With `may_ascend`, the learning rate may be negative.
  virtual void check(bool may_ascend) const = 0;

  /// Returns the option `name` if it has the type T, otherwise null.
  template <typename T>
  T* find(std::string_view name) {
    for (const auto& [key, value] : list()) {
      if (key == name) return std::holds_alternative<T*>(value) ? std::get<T*>(value) : nullptr;
    }
    return nullptr;
  }

 protected:
  ListedOptions() = default;
  ListedOptions(const ListedOptions&) = default;
  ListedOptions& operator=(const ListedOptions&) = default;
};

/// Writes the options and the optimizer's name into an archive.
void write_options(torch::serialize::OutputArchive& archive, ListedOptions& options);
/// Reads an archive of write_options() or of LibTorch's optimizer of the same name. Throws std::invalid_argument for
/// the archive of another optimizer.
void read_options(torch::serialize::InputArchive& archive, ListedOptions& options);

/// The checks that most optimizers need: betas are in [0, 1), and no number except `t0` is negative.
void check_usual(ListedOptions& options, bool may_ascend);

/// The base class of the options `Self`, which has `lr()` and implements ListedOptions.
template <typename Self>
class OwnOptions : public torch::optim::OptimizerCloneableOptions<Self>, public ListedOptions, public RateTensor {
 public:
  void serialize(torch::serialize::InputArchive& archive) override { read_options(archive, *this); }
  void serialize(torch::serialize::OutputArchive& archive) const override {
    Self copy = self();
    copy.tensor_to_number();
    write_options(archive, copy);
  }
  double get_lr() const override { return rate(); }
  void set_lr(const double lr) override { set_rate(lr); }
  using RateTensor::lr_tensor;
  /// Makes the learning rate a tensor of one element, which is shared with the caller; an undefined tensor makes it a
  /// number again. Throws std::invalid_argument for any other tensor.
  Self& lr_tensor(const at::Tensor& rate) {
    set_tensor(rate);
    return static_cast<Self&>(*this);
  }
  void check(bool may_ascend) const override {
    Self copy = self();
    check_usual(copy, may_ascend);
  }

 protected:
  double& rate_number() override { return static_cast<Self&>(*this).lr(); }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
};

/// An optimizer with the options `Options`. It uses ddprun's own kernels on the CPU and LibTorch's operators on other
/// devices.
template <typename Options>
class OwnOptimizer : public LocalOptimizer {
 public:
  /// Refers to leaf tensors on the CPU or CUDA; groups without options get `defaults`. Throws std::invalid_argument if
  /// there are no parameters or if values are out of range.
  explicit OwnOptimizer(const std::vector<torch::optim::OptimizerParamGroup>& groups, Options defaults = {});
  /// The same with one group.
  explicit OwnOptimizer(std::vector<at::Tensor> parameters, Options defaults = {});

  /// Returns Python's name of the class.
  std::string type_name() const override;
  std::string dependence(const torch::optim::OptimizerParamGroup& group) const override;

 protected:
  void check_group(torch::optim::OptimizerParamGroup& group) const override;
  void check_capturable(const torch::optim::OptimizerParamGroup& group) const override;
  bool prepare_state(const at::Tensor& parameter, const torch::optim::OptimizerOptions& options,
                     LocalState& state) const override;
  at::Tensor prepare_step() const override;
  void run_kernel(const torch::optim::OptimizerOptions& options, FusedBatch& batch,
                  const GradientScaling& scaling) const override;
};

}  // namespace ddp::optim
