// On a machine with a GPU: DataParallel, also with two copies on one GPU, and Horovod's optimizer on CUDA parameters.
#include <ATen/Functions.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <functional>
#include <string>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/ddp/data_parallel.h>
#include <ddprun/horovod/horovod.h>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::one_process_on_gpu {
namespace {

using Catch::Matchers::ContainsSubstring;

const c10::Device kGpu(c10::kCUDA, 0);

struct NetImpl : torch::nn::Cloneable<NetImpl> {
  NetImpl() { reset(); }
  void reset() override {
    linear = register_module("linear", torch::nn::Linear(3, 4));
    norm = register_module("norm", torch::nn::BatchNorm1d(4));
  }
  at::Tensor forward(const at::Tensor& x) { return norm(linear(x)); }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};
TORCH_MODULE(Net);

at::Tensor trained_weight(Net& net, const std::function<at::Tensor(const at::Tensor&)>& forward, c10::Device device) {
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1));
  for (int step = 0; step < 10; ++step) {
    const at::Tensor x =
        at::sin(at::arange(24, at::kFloat) * (1.3F + static_cast<float>(step))).view({8, 3}).to(device);
    optimizer.zero_grad();
    forward(x).sigmoid().square().sum().backward();
    optimizer.step();
  }
  return net->linear->weight.detach().cpu();
}

Net make_net() {
  at::manual_seed(1);
  return Net();
}

TEST_CASE("DataParallelOnGpus: two copies train as two copies on the CPU do") {
  Net on_gpu = make_net();
  on_gpu->to(kGpu);
  DataParallel<Net> gpu_model(on_gpu, {.device_ids = {0, 0}});
  Net on_cpu = make_net();
  DataParallel<Net> cpu_model(on_cpu, {.replicas = 2});
  const at::Tensor gpu = trained_weight(
      on_gpu, [&](const at::Tensor& x) { return gpu_model(x); }, kGpu);
  const at::Tensor cpu = trained_weight(
      on_cpu, [&](const at::Tensor& x) { return cpu_model(x); }, c10::Device(c10::kCPU));
  CHECK(at::allclose(gpu, cpu, 1e-4, 1e-5));
  CHECK(at::allclose(on_gpu->norm->running_mean.cpu(), on_cpu->norm->running_mean, 1e-4, 1e-5));
}

TEST_CASE("DataParallelOnGpus: all are the default and batches of the host are moved") {
  Net net = make_net();
  net->to(kGpu);
  DataParallel<Net> model(net);
  CHECK_FALSE(model->devices().empty());
  DataParallel<Net> doubled(net, {.device_ids = {0, 0}});
  const at::Tensor y = doubled(at::ones({6, 3}));
  CHECK(y.device() == kGpu);
  CHECK(y.size(0) == 6);
}

TEST_CASE("DataParallelOnGpus: a model that is not on the first device is refused") {
  std::string message;
  try {
    DataParallel<Net> model(make_net(), {.device_ids = {0}});
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK_THAT(message, ContainsSubstring("the model must be on cuda:0"));
}

TEST_CASE("HorovodOnGpus: two ranks that share a GPU get equal weights") {
  spawn(2,
        [](const GroupHandle& group) {
          torch::nn::Linear net(3, 2);
          net->to(group.device());
          horovod::broadcast_parameters(*net, 0, group);
          for (const horovod::Op op : {horovod::Op::kAverage, horovod::Op::kAdasum}) {
            torch::optim::SGD sgd(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
            horovod::DistributedOptimizer optimizer(sgd, group, {.op = op});
            for (int step = 0; step < 5; ++step) {
              optimizer.zero_grad();
              net->forward(at::full({4, 3}, static_cast<float>(group.rank()), at::TensorOptions(group.device())))
                  .square()
                  .sum()
                  .backward();
              optimizer.step();
            }
            horovod::broadcast_optimizer_state(sgd, 0, group);
          }
          const at::Tensor all = all_gather(net->weight, group);
          RANK_CHECK(at::equal(all[0], all[1]));
        },
        {.backend = "gloo", .devices = {kGpu, kGpu}});
}

}  // namespace
}  // namespace ddp::one_process_on_gpu
