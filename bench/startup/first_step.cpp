// Joins the job, trains LeNet for one step and prints the monotonic clock, for bench/startup. first_step.py is the same
// program in Python.
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cstdio>

#include <ddprun/ddp.h>

#include "examples/models/lenet.h"

int main() try {
  auto group = ddp::init_process_group();
  ddp::manual_seed(0, group);
  models::LeNet net;
  ddp::DistributedDataParallel<models::LeNet> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.001).momentum(0.9));
  const torch::Tensor x = torch::randn({16, 3, 32, 32});
  const torch::Tensor y = torch::randint(10, {16}, torch::kLong);
  optimizer.zero_grad();
  const torch::Tensor loss = torch::nn::functional::cross_entropy(model(x), y);
  loss.backward();
  optimizer.step();
  TORCH_CHECK(loss.isfinite().item<bool>(), "the loss is not finite");
  const std::chrono::duration<double> now = std::chrono::steady_clock::now().time_since_epoch();
  std::printf("first step at %.6f\n", now.count());
  std::fflush(stdout);
  group.close();
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
