// A fully sharded training in which rank 1 sleeps in the third forward, before its second unit: for
// watched_sharding_test.py.
#include <ATen/ops/ones.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>

#include <chrono>
#include <exception>
#include <thread>

#include <ddprun/comm/process_group.h>
#include <ddprun/comm/report.h>
#include <ddprun/fsdp/fully_shard.h>

// Programs of tests are compiled together.
namespace watched_sharding_program {
namespace {

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(4, 4))),
        second(register_module("second", torch::nn::Linear(4, 4))) {}
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor hidden = first(x);
    while (sleeps) std::this_thread::sleep_for(std::chrono::seconds(1));
    return second(hidden);
  }
  torch::nn::Linear first, second;
  bool sleeps = false;
};
TORCH_MODULE(Net);

void train(const ddp::GroupHandle& group) {
  Net net;
  auto model = ddp::fully_shard(net, group, {.units = {ddp::children({"first", "second"})}});
  torch::optim::SGD optimizer(model->parameters(), 0.1);
  for (int step = 0; step < 5; ++step) {
    net->sleeps = step == 2 && group.rank() == 1;
    optimizer.zero_grad();
    model(at::ones({2, 4})).sum().backward();
    optimizer.step();
  }
}

}  // namespace
}  // namespace watched_sharding_program

int main() try {
  const ddp::ProcessGroup group = ddp::init_process_group();
  watched_sharding_program::train(group);
  return 0;
} catch (const std::exception& error) {
  return ddp::report(error);
}
