#include "bench/ddp/accumulation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/utils/convert_parameters.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <sstream>
#include <vector>

#include <ddprun/ddp/distributed_data_parallel.h>

#include "examples/models/lenet.h"

namespace bench {
namespace {

constexpr int64_t kBatch = 16;

// The loss of the batch of rank `rank` in step `step`.
template <typename Model>
torch::Tensor loss_of(Model& model, int64_t step, int rank) {
  auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(1000 * step + rank));
  const torch::Tensor images = torch::randn({kBatch, 3, 32, 32}, generator);
  const torch::Tensor labels = torch::randint(10, {kBatch}, generator, torch::kLong);
  return torch::nn::functional::cross_entropy(model(images), labels);
}

double median_seconds(int64_t steps, const std::function<void(int64_t step)>& train) {
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps; ++step) {
    const auto begin = std::chrono::steady_clock::now();
    train(step);
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  std::ranges::sort(seconds);
  return seconds.at(seconds.size() / 2);
}

torch::optim::SGD make_optimizer(const models::LeNet& net) {
  return torch::optim::SGD(net->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
}

}  // namespace

std::string measure_accumulation(const ddp::GroupHandle& group, int64_t steps) {
  models::LeNet alone;
  models::LeNet net;
  ddp::DistributedDataParallel<models::LeNet> model(net, group);
  {
    const torch::NoGradGuard no_grad;
    const auto from = net->parameters();
    const auto to = alone->parameters();
    for (size_t i = 0; i < to.size(); ++i) to[i].copy_(from[i]);
  }

  auto optimizer = make_optimizer(net);
  const double together = median_seconds(steps, [&](int64_t step) {
    optimizer.zero_grad();
    loss_of(model, step, group.rank()).backward();
    optimizer.step();
  });
  auto own_optimizer = make_optimizer(alone);
  const double by_itself = median_seconds(steps, [&](int64_t step) {
    own_optimizer.zero_grad();
    for (int rank = 0; rank < group.size(); ++rank) (loss_of(alone, step, rank) / group.size()).backward();
    own_optimizer.step();
  });

  const torch::NoGradGuard no_grad;
  const auto weights = torch::nn::utils::parameters_to_vector(net->parameters());
  const auto expected = torch::nn::utils::parameters_to_vector(alone->parameters());
  std::ostringstream text;
  text << together << ' ' << by_itself << ' ' << ((weights - expected).norm() / expected.norm()).item<double>();
  return text.str();
}

}  // namespace bench
