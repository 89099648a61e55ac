// Numbers that don't depend on the process's generator, and comparisons.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scalar_tensor.h>

#include <vector>

#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::test {

inline at::Tensor numbers(at::IntArrayRef shape, int64_t salt) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(salt));
  return here(at::randn(shape, generator));
}

/// A scale, or whether a gradient was not finite, as a GradScaler tells it to an optimizer.
inline at::Tensor flag(double value) {
  return here(at::scalar_tensor(value, at::kFloat));
}

/// Leaves of several shapes, equal on every call.
inline std::vector<at::Tensor> new_parameters() {
  std::vector<at::Tensor> parameters;
  const std::vector<std::vector<int64_t>> shapes = {{7, 5}, {3}, {}, {2, 3, 4, 4}, {129}};
  for (const auto& shape : shapes) {
    parameters.push_back(numbers(shape, static_cast<int64_t>(parameters.size())).requires_grad_());
  }
  return parameters;
}

inline void set_gradients(const std::vector<at::Tensor>& parameters, int64_t step, double scale = 1) {
  for (size_t i = 0; i < parameters.size(); ++i) {
    parameters[i].mutable_grad() = numbers(parameters[i].sizes(), 1000 + step * 10 + static_cast<int64_t>(i)) * scale;
  }
}

inline void expect_same_bits(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  RANK_REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    RANK_INFO("tensor " << i);
    RANK_CHECK_THAT(actual[i], EqualsTensor(expected[i]));
  }
}

/// Within 1e-6 of the norm.
inline void expect_near(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected) {
  RANK_REQUIRE(actual.size() == expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    const at::Tensor exact = expected[i].cpu();
    const double norm = exact.norm().item<double>();
    RANK_INFO("tensor " << i);
    RANK_CHECK((actual[i].cpu() - exact).norm().item<double>() <= 1e-6 * norm);
    RANK_CHECK(norm > 0);
  }
}

}  // namespace ddp::test
