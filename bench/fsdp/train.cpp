// One rank of a job that trains fully sharded models on request, for bench/fsdp/run. `bench_fsdp BACKEND cpu` reads
// lines "<case> <iterations>" and answers each with numbers. train.py is the same program in Python. The cases and
// their answers:
//   tiny200, wide4     CPU seconds and wall seconds; with "+ddp" of DistributedDataParallel
//   link               seconds of a step, and of its parts alone: see Link
//   operator           nanoseconds of an operator: with a plain tensor before and after the first fully_shard() of the
//                      process, and with a sharded parameter
#include <ATen/Parallel.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <sys/resource.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/fsdp/fully_shard.h>
#include <ddprun/optim/optimizers.h>

#include "bench/layers.h"

namespace bench_fsdp {
namespace {

using Clock = std::chrono::steady_clock;
using Step = std::function<void()>;

double since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median_of(std::vector<double> values) {
  std::ranges::sort(values);
  return values.at(values.size() / 2);
}

ddp::FullyShardOptions by_layer() {
  return {.units = {ddp::each<torch::nn::Linear>()}};
}

template <typename Model>
Step step_of(Model model, const at::Tensor& x) {
  const auto optimizer =
      std::make_shared<ddp::optim::SGD>(model->parameters(), ddp::optim::SGDOptions(1e-4).momentum(0.9));
  return [=]() mutable {
    optimizer->zero_grad();
    model(x).square().mean().backward();
    optimizer->step();
  };
}

Step make_step(const std::string& name, const ddp::GroupHandle& group) {
  const bool is_ddp = name.ends_with("+ddp");
  const std::string model = name.substr(0, name.find('+'));
  if (model != "tiny200" && model != "wide4") throw std::invalid_argument("no case '" + name + "'");
  torch::manual_seed(1);
  const bench::Layers net = model == "tiny200" ? bench::Layers(200, 8) : bench::Layers(4, 4096);
  const at::Tensor x = at::randn({8, model == "tiny200" ? 8 : 4096});
  if (is_ddp) return step_of(ddp::DistributedDataParallel<bench::Layers>(net, group), x);
  return step_of(ddp::fully_shard(net, group, by_layer()), x);
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// ------------------------------------------------------------------------------------------------------------ operator

// The time of an operator with little computation.
double nanoseconds(const at::Tensor& weight, const at::Tensor& x, int64_t iterations) {
  const auto begin = Clock::now();
  for (int64_t i = 0; i < iterations; ++i) static_cast<void>(weight.add(x));
  return 1e9 * since(begin) / static_cast<double>(iterations);
}

struct RepeatedImpl : torch::nn::Module {
  explicit RepeatedImpl(int64_t count) : weight(register_parameter("weight", at::ones({2}))), iterations(count) {}
  at::Tensor forward(const at::Tensor& x) {
    for (int i = 0; i < 21; ++i) {
      of_plain.push_back(nanoseconds(plain, x, iterations));
      of_sharded.push_back(nanoseconds(weight, x, iterations));
    }
    return weight.add(x);
  }
  at::Tensor weight;
  at::Tensor plain = at::ones({2});
  int64_t iterations;
  std::vector<double> of_plain, of_sharded;
};
TORCH_MODULE(Repeated);

void measure_operator(const ddp::GroupHandle& group, int64_t iterations) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = at::ones({2});
  Repeated net(iterations);
  std::vector<double> before;
  for (int i = 0; i < 21; ++i) before.push_back(nanoseconds(net->plain, x, iterations));
  ddp::fully_shard(net, group)->forward(x);
  std::cout << median_of(before) << ' ' << median_of(net->of_plain) << ' ' << median_of(net->of_sharded) << std::endl;
}

// ---------------------------------------------------------------------------------------------------------------- link

// Trains a model of 12 layers with 12.6 MB of parameters over a slow link. Also measures the parts of a step
// separately: forward, backward and optimizer of a model of the same size, the all-gathers and the reduce-scatters.
class Link {
 public:
  explicit Link(const ddp::GroupHandle& group) : group_(group) {}

  void run(int64_t steps) {
    const bench::Layers net(kLayers, kWidth);
    bench::Layers alone(kLayers, kWidth);
    ddp::FullySharded<bench::Layers> model = ddp::fully_shard(net, group_, by_layer());
    const Step step = step_of(model, input_);
    ddp::optim::SGD optimizer(model->parameters(), ddp::optim::SGDOptions(1e-4).momentum(0.9));
    std::vector<double> whole, forward, backward, update, gathers, scatters;
    for (int64_t i = -2; i < steps; ++i) {
      ddp::barrier(group_);
      const auto begin = Clock::now();
      step();
      const double took = since(begin);
      ddp::barrier(group_);
      auto part = Clock::now();
      const at::Tensor loss = alone(input_).square().mean();
      const double of_forward = since(part);
      part = Clock::now();
      loss.backward();
      const double of_backward = since(part);
      part = Clock::now();
      optimizer.step();
      const double of_update = since(part);
      const double of_gathers = time([&] { static_cast<void>(ddp::all_gather(shard_, group_)); });
      const double of_scatters = time([&] { static_cast<void>(ddp::reduce_scatter(gradient_, group_)); });
      if (i < 0) continue;
      whole.push_back(took);
      forward.push_back(of_forward);
      backward.push_back(of_backward);
      update.push_back(of_update);
      gathers.push_back(of_gathers);
      scatters.push_back(of_scatters);
    }
    for (const auto& times : {whole, forward, backward, update, gathers}) std::cout << median_of(times) << ' ';
    std::cout << median_of(scatters) << std::endl;
  }

 private:
  static constexpr int kLayers = 12;
  static constexpr int64_t kWidth = 512;

  // The time of one message per layer.
  double time(const std::function<void()>& call) const {
    ddp::barrier(group_);
    const auto begin = Clock::now();
    for (int i = 0; i < kLayers; ++i) call();
    return since(begin);
  }

  ddp::GroupHandle group_;
  at::Tensor input_ = at::randn({512, kWidth});
  at::Tensor gradient_ = at::ones({kWidth * (kWidth + 1)});
  at::Tensor shard_ = at::ones({kWidth * (kWidth + 1) / 2});
};

void run(const ddp::GroupHandle& group) {
  std::map<std::string, Step> steps;
  std::string name;
  for (int64_t iterations = 0; std::cin >> name >> iterations;) {
    if (name == "operator") {
      measure_operator(group, iterations);
    } else if (name == "link") {
      Link(group).run(iterations);
    } else {
      if (!steps.contains(name)) steps.emplace(name, make_step(name, group));
      const Step& step = steps.at(name);
      const double cpu = cpu_seconds();
      const auto begin = Clock::now();
      for (int64_t i = 0; i < iterations; ++i) step();
      const double wall = since(begin);
      std::cout << cpu_seconds() - cpu << ' ' << wall << std::endl;
    }
  }
}

}  // namespace
}  // namespace bench_fsdp

int main(int count, char** arguments) try {
  if (count < 2) throw std::invalid_argument("the backend is missing");
  at::set_num_threads(1);
  const ddp::ProcessGroup group = ddp::init_process_group({.backend = arguments[1]});
  bench_fsdp::run(group);
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
