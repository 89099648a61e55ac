// Fits a line on any number of ranks, saves after every step, and goes on from the last one: the same steps however
// often the number of ranks changes. `elastic_training_program FOLDER STEPS`
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#include <ddprun/ddp.h>

namespace {

constexpr int64_t kSamples = 12;  // the same number for each of 1, 2, 3 or 4 ranks

bool exists(const std::string& file) {
  return std::filesystem::exists(file);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) return 2;
  const std::string folder = argv[1];
  const int64_t steps = std::atoll(argv[2]);
  auto group = ddp::init_process_group({.backend = "gloo"});
  ddp::manual_seed(0, group);
  torch::nn::Linear net(1, 1);
  ddp::DistributedDataParallel<torch::nn::Linear> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  ddp::CheckpointManager manager(folder + "/run", group, {.keep_last = 2});
  const auto start = manager.load_latest({.model = net, .optimizer = optimizer});
  const auto x = torch::arange(kSamples, torch::kFloat).unsqueeze(1) / kSamples;
  const auto own = x.chunk(group.size())[group.rank()];
  for (int64_t step = start ? start->step : 0; step < steps; ++step) {
    // Until the test lets it go on, it makes no more steps than that.
    while (!exists(folder + "/until." + std::to_string(step + 1)) && !exists(folder + "/until.end")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    optimizer.zero_grad();
    torch::nn::functional::mse_loss(model(own), 2 * own + 1).backward();
    optimizer.step();
    manager.save(step + 1, {.model = net, .optimizer = optimizer});
    if (group.rank() == 0) std::printf("step %lld with %d ranks\n", static_cast<long long>(step + 1), group.size());
    std::fflush(stdout);
  }
  if (group.rank() == 0) {
    std::printf("weight %.6f bias %.6f\n", net->weight.item<double>(), net->bias.item<double>());
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
