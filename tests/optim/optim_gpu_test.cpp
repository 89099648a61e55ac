// On a machine with a GPU: the fused optimizers follow those on the CPU, with found_inf and scale on the device.
#include <torch/cuda.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include <ddprun/optim/clip_grad.h>
#include <ddprun/optim/larc.h>
#include <ddprun/optim/optimizers.h>

#include "tests/optim/numbers.h"
#include "tests/support/catch.h"

namespace ddp::optim {
namespace {

using Make = std::function<std::unique_ptr<FusedOptimizer>(std::vector<at::Tensor>)>;

std::vector<at::Tensor> parameters_on(c10::Device device) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : test::new_parameters())
    parameters.push_back(parameter.detach().to(device).requires_grad_());
  return parameters;
}

constexpr int kSteps = 20;
constexpr double kScale = 1024;

// Steps 0 and 5 overflow.
std::unique_ptr<FusedOptimizer> train(const Make& make, const std::vector<at::Tensor>& parameters) {
  auto optimizer = make(parameters);
  const auto device = parameters.front().device();
  const auto scalar = [&](double value) {
    return at::scalar_tensor(value, at::TensorOptions().dtype(at::kFloat).device(device));
  };
  for (int step = 0; step < kSteps; ++step) {
    const bool overflows = step == 0 || step == 5;
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto gradient = test::numbers(parameters[i].sizes(), 1000 + step * 10 + static_cast<int64_t>(i));
      const double factor = overflows ? std::numeric_limits<double>::infinity() : kScale;
      parameters[i].mutable_grad() = (gradient * factor).to(device);
    }
    clip_grad_norm_(parameters, 5.0, {.grad_scale = scalar(kScale)});
    optimizer->step_scaled({.grad_scale = scalar(kScale), .found_inf = scalar(overflows ? 1 : 0)});
  }
  return optimizer;
}

void expect_the_cpus_result(const Make& make) {
  const auto on_cpu = parameters_on(at::kCPU);
  const auto on_gpu = parameters_on(at::kCUDA);
  train(make, on_cpu);
  const auto optimizer = train(make, on_gpu);
  for (size_t i = 0; i < on_cpu.size(); ++i) {
    UNSCOPED_INFO("parameter " << i);
    CHECK(on_gpu[i].cpu().allclose(on_cpu[i], 1e-4, 1e-5));
    const auto state = optimizer->parameter_state(on_gpu[i]);
    if (!state.contains("step")) continue;
    CHECK(state.at("step").is_cuda());
    CHECK(state.at("step").item<float>() == kSteps - 2);
  }
}

TEST_CASE("FusedOnCuda: follows the CPU and counts no skipped step") {
  REQUIRE(torch::cuda::is_available());
  expect_the_cpus_result(
      [](auto p) { return std::make_unique<SGD>(p, SGDOptions(0.1).momentum(0.9).weight_decay(0.01)); });
  expect_the_cpus_result([](auto p) { return std::make_unique<Adam>(p, AdamOptions(0.01).amsgrad(true)); });
  expect_the_cpus_result([](auto p) { return std::make_unique<AdamW>(p, AdamWOptions(0.01)); });
  expect_the_cpus_result([](auto p) { return std::make_unique<Adagrad>(p, AdagradOptions(0.1).lr_decay(0.1)); });
  expect_the_cpus_result([](auto p) { return std::make_unique<Larc<SGD>>(p, SGDOptions(0.1).weight_decay(0.1)); });
}

TEST_CASE("FusedOnCuda: a skipped first SGD step leaves zero momentum") {
  REQUIRE(torch::cuda::is_available());
  const auto parameters = parameters_on(at::kCUDA);
  SGD optimizer(parameters, SGDOptions(0.1).momentum(0.9));
  for (const auto& parameter : parameters) parameter.mutable_grad() = at::full_like(parameter.detach(), 1 / 0.0);
  optimizer.step_scaled({.found_inf = at::ones({}, at::TensorOptions().device(at::kCUDA))});
  for (const auto& parameter : parameters) {
    CHECK(optimizer.parameter_state(parameter).at("momentum_buffer").abs().sum().item<float>() == 0);
  }
}

}  // namespace
}  // namespace ddp::optim
