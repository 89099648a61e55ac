// Measures what a GradScaler adds to a training iteration of LeNet. Prints the median milliseconds of an iteration with
// and without it. The two kinds of iteration alternate, so that changes in machine load affect both equally.
#include <ATen/Parallel.h>
#include <torch/nn/functional/loss.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/optim/optimizers.h>

#include "examples/models/lenet.h"

namespace {

template <typename Optimizer, typename Options>
void measure(const char* name, int64_t batch, int iterations) {
  models::LeNet net;
  Optimizer optimizer(net->parameters(), Options(1e-3));
  ddp::GradScaler scaler({.device = c10::kCPU});
  const torch::Tensor x = torch::randn({batch, 3, 32, 32});
  const torch::Tensor y = torch::randint(10, {batch}, torch::kLong);
  std::vector<double> times[2];
  for (int i = 0; i < 2 * (iterations + 5); ++i) {
    const bool scaled = i % 2 == 0;
    const auto start = std::chrono::steady_clock::now();
    optimizer.zero_grad();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net(x), y);
    if (scaled) {
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    } else {
      loss.backward();
      optimizer.step();
    }
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - start;
    if (i >= 10) times[scaled].push_back(time.count());
  }
  for (auto& series : times) std::nth_element(series.begin(), series.begin() + iterations / 2, series.end());
  std::printf("%s %.6f %.6f\n", name, times[true][static_cast<size_t>(iterations / 2)],
              times[false][static_cast<size_t>(iterations / 2)]);
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t batch = argc > 1 ? std::atoll(argv[1]) : 128;
  const int iterations = argc > 2 ? std::atoi(argv[2]) : 100;
  at::set_num_threads(1);
  torch::manual_seed(0);
  measure<ddp::optim::SGD, ddp::optim::SGDOptions>("ddp::optim::SGD", batch, iterations);
  measure<torch::optim::SGD, torch::optim::SGDOptions>("torch::optim::SGD", batch, iterations);
  return 0;
}
