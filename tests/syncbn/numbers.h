// What the tests of synchronised batch norms compute with.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/types.h>

#include <cstdint>

#include "tests/support/catch.h"
#include "tests/support/placement.h"

namespace ddp::test {

/// Normally distributed, without the generator that all threads of the process share.
inline torch::Tensor numbers(torch::IntArrayRef shape, uint64_t seed, torch::ScalarType type = torch::kDouble) {
  return here(torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble)).to(type);
}

/// The largest difference, relative to the largest expected value.
inline double error(const torch::Tensor& actual, const torch::Tensor& expected) {
  if (expected.numel() == 0) return 0;
  const double largest = expected.to(torch::kDouble).abs().max().item<double>();
  const double difference = (actual.to(torch::kDouble) - expected.to(torch::kDouble)).abs().max().item<double>();
  return largest > 0 ? difference / largest : difference;
}

}  // namespace ddp::test
