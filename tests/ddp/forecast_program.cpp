// A rank that trains three nets over gloo, one after another, whose computation is sleep, so that more ranks than
// processors compute at the same time: `STEPS [FOLDER]`. Prints "latency <microseconds>" of a message, and
// "<net> <milliseconds of a step>" (median) for each net; with FOLDER it writes a timeline of each net there.
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/base/timeline.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

namespace {

using StepClock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

constexpr int kUntimedSteps = 3;  // the first backwards find the order of the gradients

struct SleepingLayer {
  int64_t kilobytes = 0;
  double backward_ms = 0;
};

struct NetPlan {
  std::string name;
  std::vector<SleepingLayer> layers;  // in the order of forward
  double forward_ms = 0;
  double jitter_ms = 0;  // the mean of what a rank's step takes longer, by an exponential distribution
};

const std::vector<NetPlan>& net_plans() {
  static const std::vector<NetPlan> all{
      {.name = "even", .layers = {{192, 20}, {192, 20}, {192, 20}, {192, 20}, {192, 20}, {192, 20}}, .forward_ms = 40},
      {.name = "front", .layers = {{1024, 10}, {64, 40}, {64, 40}, {64, 40}}, .forward_ms = 30},
      {.name = "uneven", .layers = {{256, 30}, {256, 30}, {256, 30}}, .forward_ms = 60, .jitter_ms = 20}};
  return all;
}

void sleep_for_ms(double milliseconds) {
  std::this_thread::sleep_for(Milliseconds(milliseconds));
}

class SleepingNet : public torch::nn::Module {
 public:
  SleepingNet(NetPlan plan, int rank) : plan_(std::move(plan)), random_(static_cast<unsigned>(rank)) {
    for (std::size_t i = 0; i < plan_.layers.size(); ++i) {
      const int64_t numbers = plan_.layers[i].kilobytes * 1024 / static_cast<int64_t>(sizeof(float));
      weights_.push_back(register_parameter("weight" + std::to_string(i), torch::ones({numbers})));
    }
  }
  torch::Tensor forward(torch::Tensor x) {
    sleep_for_ms(plan_.forward_ms + (plan_.jitter_ms > 0 ? jitter_(random_) * plan_.jitter_ms : 0));
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      x = x + weights_[i].sum();
      x.register_hook([time = plan_.layers[i].backward_ms](const torch::Tensor&) { sleep_for_ms(time); });
    }
    return x;
  }

 private:
  NetPlan plan_;
  std::mt19937 random_;
  std::exponential_distribution<double> jitter_{1.0};
  std::vector<torch::Tensor> weights_;
};

// Of a message: a ring over two ranks sends two, one after another.
double measure_latency(const ddp::GroupHandle& group) {
  constexpr int kTimes = 100;
  torch::Tensor number = torch::ones({1});
  ddp::barrier(group);
  const auto begin = StepClock::now();
  for (int i = 0; i < kTimes; ++i) ddp::all_reduce(number, group);
  return 1000 * Milliseconds(StepClock::now() - begin).count() / kTimes / (2 * (group.size() - 1));
}

double time_training(const NetPlan& plan, const ddp::GroupHandle& group, int steps, const std::string& folder) {
  auto net = std::make_shared<SleepingNet>(plan, group.rank());
  ddp::DistributedDataParallel<SleepingNet> model(net, group,
                                                  {.bucket_cap_bytes = 192 << 10, .first_bucket_bytes = 192 << 10});
  ddp::optim::SGD optimizer(model->parameters(), ddp::optim::SGDOptions(1e-6));
  std::optional<ddp::Timeline> timeline;
  if (!folder.empty()) timeline.emplace(folder + "/" + plan.name + ".json", ddp::TimelineOptions{.starts = false});
  std::vector<double> times;
  for (int step = 0; step < kUntimedSteps + steps; ++step) {
    if (step == kUntimedSteps) {
      ddp::barrier(group);
      if (timeline) timeline->start();
    }
    const auto begin = StepClock::now();
    optimizer.zero_grad();
    model(torch::ones({1})).sum().backward();
    optimizer.step();
    if (step >= kUntimedSteps) times.push_back(Milliseconds(StepClock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc < 2 || std::atoi(argv[1]) < 1) return 2;
  auto group = ddp::init_process_group({.backend = "gloo"});
  const double latency = measure_latency(group);
  if (group.rank() == 0) std::cout << "latency " << latency << std::endl;
  for (const NetPlan& plan : net_plans()) {
    const double milliseconds = time_training(plan, group, std::atoi(argv[1]), argc > 2 ? argv[2] : "");
    if (group.rank() == 0) std::cout << plan.name << ' ' << milliseconds << std::endl;
  }
  group.close();
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
