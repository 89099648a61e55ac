// One rank of a job that trains models on request, for bench/ddp/run. It reads lines "<case> <iterations>" and answers
// each with "<CPU seconds> <wall seconds> <peak resident bytes>" of this rank (the headers of "overlap" and
// "accumulation" describe their answers). train.py is the same program in Python. A case may have suffixes: "+copies"
// keeps gradients outside the buckets, "+batched" and "+unbatched" set batched_grad_copy to true and false, "+c10d"
// uses only the engine of c10d, "+fused" updates all parameters in one optimizer call, "+alone" trains without
// DistributedDataParallel. The first argument is "cpu", followed by the name of the backend, or "cuda": one rank on the
// first GPU with NCCL.
#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <functional>
#include <iostream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

#include "bench/ddp/accumulation.h"
#include "bench/ddp/overlap.h"
#include "bench/layers.h"
#include "examples/models/lenet.h"
#include "examples/models/resnet.h"

namespace {

using Step = std::function<void()>;

struct Way {
  ddp::DdpOptions options;
  bool is_fused = false;
  bool is_alone = false;
};

template <typename Model>
Step step_of(Model model, std::shared_ptr<torch::optim::Optimizer> optimizer, const torch::Tensor& x,
             const torch::Tensor& y) {
  return [=]() mutable {
    optimizer->zero_grad();
    const torch::Tensor output = model(x);
    const torch::Tensor loss = y.defined() ? torch::nn::functional::cross_entropy(output, y) : output.square().mean();
    loss.backward();
    optimizer->step();
  };
}

template <typename Net>
Step make_step(Net net, const ddp::GroupHandle& group, const Way& way, const torch::Tensor& x_on_host,
               const torch::Tensor& y_on_host) {
  net->to(group.device());
  const torch::Tensor x = x_on_host.to(group.device());
  const torch::Tensor y = y_on_host.defined() ? y_on_host.to(group.device()) : y_on_host;
  std::shared_ptr<torch::optim::Optimizer> optimizer;
  if (group.device().is_cuda() || way.is_fused) {  // one kernel updates all parameters, in C++ and in Python
    optimizer = std::make_shared<ddp::optim::SGD>(net->parameters(), ddp::optim::SGDOptions(1e-3).momentum(0.9));
  } else {
    optimizer = std::make_shared<torch::optim::SGD>(net->parameters(), torch::optim::SGDOptions(1e-3).momentum(0.9));
  }
  if (way.is_alone) return step_of(net, optimizer, x, y);
  return step_of(ddp::DistributedDataParallel<Net>(net, group, way.options), optimizer, x, y);
}

// Waits until a GPU has finished all queued work.
void finish(const ddp::GroupHandle& group) {
  if (group.device().is_cuda()) torch::zeros({}, group.device()).item();
}

Step make_case(const std::string& name, const ddp::GroupHandle& group) {
  const auto has = [&](const std::string& flag) { return (name + '+').find('+' + flag + '+') != std::string::npos; };
  ddp::DdpOptions options{.gradient_as_bucket_view = !has("copies")};
  if (has("batched") || has("unbatched")) options.batched_grad_copy = has("batched");
  if (has("batched") || has("unbatched") || has("c10d")) options.own_engine = false;
  const Way way{.options = options, .is_fused = has("fused"), .is_alone = has("alone")};
  const std::string model = name.substr(0, name.find('+'));
  torch::manual_seed(group.rank());
  const auto images = [](int64_t batch) { return torch::randn({batch, 3, 32, 32}); };
  const auto labels = [](int64_t batch) { return torch::randint(10, {batch}, torch::kLong); };
  if (model == "linear1") return make_step(bench::Layers(1, 1), group, way, torch::randn({1, 1}), {});
  if (model == "tiny200") return make_step(bench::Layers(200, 8), group, way, torch::randn({8, 8}), {});
  if (model == "wide") return make_step(bench::Layers(4, 2048), group, way, torch::randn({2, 2048}), {});
  if (model == "lenet16") return make_step(models::LeNet(), group, way, images(16), labels(16));
  if (model == "lenet512") return make_step(models::LeNet(), group, way, images(512), labels(512));
  if (model == "resnet18_256") {
    return make_step(models::ResNet18(models::ResNetOptions{.num_classes = 10}), group, way, images(256), labels(256));
  }
  if (model == "lenet128") return make_step(models::LeNet(), group, way, images(128), labels(128));
  if (model == "resnet18_32") {
    return make_step(models::ResNet18(models::ResNetOptions{.num_classes = 10}), group, way, images(32), labels(32));
  }
  if (model == "resnet18") {
    return make_step(models::ResNet18(models::ResNetOptions{.num_classes = 10}), group, way, images(8), labels(8));
  }
  throw std::invalid_argument("no case '" + name + "'");
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

int64_t peak_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{1024} * usage.ru_maxrss;
}

}  // namespace

int main(int count, char** arguments) try {
  at::set_num_threads(1);
  const bool on_gpu = count > 1 && std::string(arguments[1]) == "cuda";
  const std::string on_cpu = count > 2 ? arguments[2] : "gloo";
  const ddp::ProcessGroup group = ddp::init_process_group({.backend = on_gpu ? "cpu:gloo,cuda:nccl" : on_cpu});
  std::map<std::string, Step> steps;
  std::string name;
  for (int64_t iterations = 0; std::cin >> name >> iterations;) {
    if (name == "overlap") {
      std::cout << bench::measure_overlap(group, iterations) << std::endl;
      continue;
    }
    if (name == "accumulation") {
      std::cout << bench::measure_accumulation(group, iterations) << std::endl;
      continue;
    }
    if (!steps.contains(name)) steps.emplace(name, make_case(name, group));
    const Step& step = steps.at(name);
    finish(group);
    const double cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < iterations; ++i) step();
    finish(group);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    std::cout << cpu_seconds() - cpu << ' ' << wall.count() << ' ' << peak_bytes() << std::endl;
  }
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
