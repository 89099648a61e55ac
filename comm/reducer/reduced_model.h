// Internal: the model whose gradients are reduced.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddp::detail {

struct ReducedModel {
  std::string name{};                    ///< of its class, for logging data
  std::vector<at::Tensor> parameters{};  ///< leaves that require gradients, each once
  std::vector<std::string> names{};      ///< theirs, for messages
  std::vector<bool> sparse_gradients{};  ///< which of them have such; empty: none

  int64_t bytes() const {
    int64_t sum = 0;
    for (const at::Tensor& parameter : parameters) sum += static_cast<int64_t>(parameter.nbytes());
    return sum;
  }
};

}  // namespace ddp::detail
