// What the optimizers' constructors share.
#pragma once

#include <torch/optim/optimizer.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/optim/optimizers.h>

#include "base/rank_prefix.h"

namespace ddp::optim {

/// The parameters as one group. Throws std::invalid_argument, as Python does, when there are none.
inline std::vector<torch::optim::OptimizerParamGroup> one_group(std::vector<at::Tensor> parameters) {
  if (parameters.empty()) throw std::invalid_argument(rank_prefix() + "optimizer got an empty parameter list");
  std::vector<torch::optim::OptimizerParamGroup> groups;
  groups.emplace_back(std::move(parameters));
  return groups;
}

/// `defaults` on the heap, as torch::optim::Optimizer wants them, after their values were checked.
template <typename Options>
std::unique_ptr<torch::optim::OptimizerOptions> checked(const Options& defaults) {
  check_options(defaults);
  return std::make_unique<Options>(defaults);
}

/// Makes the group's options `Options` where they are LibTorch's, and checks their values.
template <typename Options>
void use_options(torch::optim::OptimizerParamGroup& group, const std::string& type) {
  const auto* own = dynamic_cast<const Options*>(&group.options());
  if (!own) {
    const auto* torch = dynamic_cast<const typename Options::Base*>(&group.options());
    if (!torch) {
      throw std::invalid_argument(rank_prefix() + type + ": a parameter group has another optimizer's options");
    }
    group.set_options(std::make_unique<Options>(*torch));
    own = static_cast<const Options*>(&group.options());
  }
  check_options(*own, /*may_ascend=*/true);
}

}  // namespace ddp::optim
