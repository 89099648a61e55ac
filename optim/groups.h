// Functions that the constructors of all optimizers share.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ddprun/detail/comm/device_copy.h>
#include <ddprun/optim/optimizers.h>

#include "base/rank_prefix.h"

namespace ddp::optim {

/// Throws std::invalid_argument "rank 1 of 2: <what>: <value>" unless `is_valid` and the value is finite.
void require_value(bool is_valid, const char* what, double value);

/// The checks that Python's constructors make for betas.
void require_betas(const std::tuple<double, double>& betas);

/// Calls a fused kernel with the learning rate of `options`: its tensor if there is one, otherwise `number`.
template <typename Kernel>
void with_rate(const RateTensor& options, double number, const c10::Device& device, Kernel&& kernel) {
  if (!options.lr_tensor().defined()) {
    kernel(number);
  } else if constexpr (requires(const at::Tensor& tensor) { kernel(tensor); }) {
    // On the CPU, the kernels would read the tensor's value as well.
    if (device.is_cpu()) return kernel(options.lr_tensor().item<double>());
    kernel(to_device(options.lr_tensor().to(at::kFloat), device));
  } else {
    kernel(options.lr_tensor().item<double>());
  }
}

/// Returns the parameters as one group. Throws std::invalid_argument, as Python does, if the list is empty.
inline std::vector<torch::optim::OptimizerParamGroup> one_group(std::vector<at::Tensor> parameters) {
  if (parameters.empty()) throw std::invalid_argument(rank_prefix() + "optimizer got an empty parameter list");
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(parameters));
  return groups;
}

/// Throws std::invalid_argument if a value is out of range.
template <typename Options>
void check_values(const Options& options, bool may_ascend) {
  options.check_rate(may_ascend);
  if constexpr (requires { options.check(may_ascend); }) {
    options.check(may_ascend);
  } else {
    check_options(options, may_ascend);
  }
}

/// Checks the values of `defaults` and returns a copy on the heap, as torch::optim::Optimizer requires.
template <typename Options>
std::unique_ptr<torch::optim::OptimizerOptions> checked(const Options& defaults) {
  check_values(defaults, /*may_ascend=*/false);
  return std::make_unique<Options>(defaults);
}

/// Converts LibTorch's options of the group to `Options` if necessary, and checks their values.
template <typename Options>
void use_options(torch::optim::OptimizerParamGroup& group, const std::string& type) {
  const auto* own = dynamic_cast<const Options*>(&group.options());
  if constexpr (requires { typename Options::Base; }) {
    if (const auto* torch = dynamic_cast<const typename Options::Base*>(&group.options()); torch && !own) {
      group.set_options(std::make_unique<Options>(*torch));
      own = static_cast<const Options*>(&group.options());
    }
  }
  if (!own) throw std::invalid_argument(rank_prefix() + type + ": a parameter group has another optimizer's options");
  check_values(*own, /*may_ascend=*/true);
}

}  // namespace ddp::optim
