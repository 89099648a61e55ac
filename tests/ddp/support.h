// What the tests of DistributedDataParallel share: numbers that don't depend on the process's generator, a small model.
#pragma once

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/types.h>

#include <exception>
#include <mutex>
#include <string>
#include <vector>

#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp::test {

/// Random numbers of a rank, without the generator that all threads of the process share.
inline torch::Tensor numbers(torch::IntArrayRef shape, int64_t salt) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 + salt));
  return here(torch::randn(shape, generator));
}

/// A new model with determined parameters. Its own constructor draws from the shared generator: one at a time.
template <typename Model>
Model make(int64_t salt) {
  Model model(nullptr);
  {
    static std::mutex mutex;
    const std::lock_guard lock(mutex);
    model = Model();
  }
  model = placed(model);
  const torch::NoGradGuard no_grad;
  for (const auto& item : model->named_parameters()) item.value().copy_(numbers(item.value().sizes(), salt++));
  return model;
}

inline void expect_equal(const torch::Tensor& actual, const torch::Tensor& expected) {
  RANK_CHECK_THAT(actual, EqualsTensor(expected));
}

inline void expect_close(const torch::Tensor& actual, const torch::Tensor& expected, double relative = 1e-5,
                         double absolute = 1e-6) {
  RANK_CHECK_THAT(actual, IsCloseTo(expected, relative, absolute));
}

/// The gradient of each parameter is close to that in its place of `expected`, and undefined where that is.
template <typename Net>
void expect_gradients(const Net& net, const std::vector<torch::Tensor>& expected, double relative = 1e-5,
                      double absolute = 1e-6) {
  const auto parameters = net->named_parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    RANK_INFO("parameter " << parameters[i].key());
    const torch::Tensor& gradient = parameters[i].value().grad();
    RANK_REQUIRE(gradient.defined() == expected[i].defined());
    if (gradient.defined()) expect_close(gradient, expected[i], relative, absolute);
  }
}

/// What `body` throws, or "".
template <typename Body>
std::string message_of(Body body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

struct TwoLayersImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};
TORCH_MODULE(TwoLayers);

/// The gradients that a model of kind `Model` has after `backward(model, rank)`, averaged over ranks 0 … size - 1.
template <typename Model, typename Backward>
std::vector<torch::Tensor> mean_gradients(int64_t salt, int size, Backward backward) {
  std::vector<torch::Tensor> mean;
  for (int rank = 0; rank < size; ++rank) {
    auto alone = make<Model>(salt);
    backward(alone, rank);
    const auto parameters = alone->parameters();
    for (size_t i = 0; i < parameters.size(); ++i) {
      const auto gradient = parameters[i].grad().defined() ? parameters[i].grad() / size : torch::Tensor();
      if (rank == 0) {
        mean.push_back(gradient);
      } else if (gradient.defined()) {
        mean[i] = mean[i].defined() ? mean[i] + gradient : gradient;
      }
    }
  }
  return mean;
}

}  // namespace ddp::test
