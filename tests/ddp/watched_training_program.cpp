// A training that comes to grief on one rank, where it is told to: `FOLDER KIND RANK STEP [STEPS]`; KIND is data,
// forward, checkpoint, skip or none.
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>

#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <thread>

#include <ddprun/base/progress.h>
#include <ddprun/base/timeline.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/samplers/distributed_sampler.h>

namespace {

struct Fault {
  std::string kind;
  int rank = -1;
  int64_t step = -1;
  int64_t now = 0;  // the step that goes on

  void at(const std::string& place, int this_rank) const {
    using namespace std::chrono_literals;
    if (kind == place && rank == this_rank && step == now) std::this_thread::sleep_for(1h);
  }
};

struct Samples {
  const Fault* fault;
  int rank;
  int64_t size() const { return 1 << 20; }
  ddp::Batch get_batch(std::span<const int64_t> indices) const {
    const ddp::timeline::Range range("augmentation");
    fault->at("data", rank);
    const auto count = static_cast<int64_t>(indices.size());
    return {.data = torch::ones({count, 4}), .target = torch::ones({count, 1})};
  }
};

struct Net : torch::nn::Module {
  Net(const Fault& given, int this_rank) : fault(&given), rank(this_rank) { register_module("layer", layer); }
  torch::Tensor forward(const torch::Tensor& x) {
    fault->at("forward", rank);
    return layer(x);
  }
  const Fault* fault;
  int rank;
  torch::nn::Linear layer{4, 1};
};

void train_watched(const std::string& folder, Fault& fault, int64_t steps) {
  auto group = ddp::init_process_group();
  auto net = std::make_shared<Net>(fault, group.rank());
  ddp::DistributedDataParallel<Net> model(net, group);
  ddp::optim::SGD optimizer(model->parameters(), ddp::optim::SGDOptions(0.01));
  const Samples samples{&fault, group.rank()};
  ddp::DistributedSampler sampler(static_cast<size_t>(samples.size()), group);
  ddp::DeviceLoader loader(samples, sampler, group.device(), {.batch_size = 2, .workers = 0});
  ddp::CheckpointManager checkpoints(folder + "/run", group);
  for (auto& batch : loader) {
    optimizer.zero_grad();
    torch::mse_loss(model(batch.data), batch.target).backward();
    optimizer.step();
    if (fault.now % 10 == 8) {
      const torch::NoGradGuard no_grad;
      model(batch.data);
      ddp::progress::value("loss", 0.5);
    }
    if (fault.now % 10 == 9) {
      fault.at("checkpoint", group.rank() == 0 ? 0 : -1);
      checkpoints.save(fault.now, {.model = *net, .optimizer = optimizer, .sampler = loader});
    }
    const bool skips = fault.kind == "skip" && fault.rank == group.rank() && fault.step == fault.now;
    if (!skips) ddp::all_reduce(torch::ones({3}), group);
    if (++fault.now == steps) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  ddp::barrier(group);
  group.close();
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 5) return 2;
  Fault fault{.kind = argv[2], .rank = std::atoi(argv[3]), .step = std::atoi(argv[4])};
  train_watched(argv[1], fault, argc > 5 ? std::atoi(argv[5]) : -1);
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
