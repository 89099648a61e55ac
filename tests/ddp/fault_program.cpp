// A small training in which one rank goes wrong at a given step; faults_soak.py starts the ranks and reads what the
// others say.
//
//     fault_program MODEL FAULT VICTIM STEP TIMEOUT_MS
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/pimpl.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <csignal>
#include <ctime>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "comm/collectives.h"
#include "comm/manual_seed.h"
#include "comm/report.h"
#include "ddp/comm_hooks.h"
#include "ddp/distributed_data_parallel.h"
#include "horovod/horovod.h"
#include "syncbn/conversion.h"

namespace {

struct PlainImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(torch::tanh(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Plain);

struct NormedImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return second(norm(first(x))); }
  torch::nn::Linear first = register_module("first", torch::nn::Linear(6, 8));
  torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(8));
  torch::nn::Linear second = register_module("second", torch::nn::Linear(8, 3));
};
TORCH_MODULE(Normed);

struct Plan {
  std::string model, fault;
  int victim = 0;
  int step = 0;
  std::chrono::milliseconds timeout{};
};

constexpr int kSteps = 12;
constexpr int kEndless = 1000000;

// The moment from which the others' time counts; the clock is the whole machine's.
void announce() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  std::fprintf(stderr, "FAULT %ld.%09ld\n", static_cast<long>(now.tv_sec), now.tv_nsec);
  std::fflush(stderr);
}

// True when this step is left out.
bool go_wrong(const Plan& plan, const ddp::GroupHandle& group, int step) {
  if (group.rank() != plan.victim || step != plan.step) return false;
  announce();
  if (plan.fault == "kill") std::raise(SIGKILL);
  if (plan.fault == "stop") std::raise(SIGSTOP);
  if (plan.fault == "throw") throw std::runtime_error("the data of this rank is bad");
  if (plan.fault == "other") ddp::all_gather(torch::ones({3}, torch::kLong), group);
  return plan.fault == "skip";
}

void train(const Plan& plan, const ddp::GroupHandle& group, const std::function<torch::Tensor(torch::Tensor)>& forward,
           const std::function<void()>& zero, const std::function<void()>& step) {
  // Without a fault of its own the program waits for one from outside.
  const int steps = plan.fault == "none" ? kEndless : kSteps;
  for (int i = 0; i < steps; ++i) {
    if (go_wrong(plan, group, i)) continue;
    zero();
    torch::Tensor y = forward(torch::randn({4, 6}));
    if (plan.fault == "hook" && group.rank() == plan.victim && i == plan.step) {
      y.register_hook([](const torch::Tensor&) -> torch::Tensor {
        announce();
        throw std::runtime_error("the hook of this rank fails");
      });
    }
    y.square().mean().backward();
    step();
  }
}

template <typename Net>
void train_wrapped(const Plan& plan, const ddp::GroupHandle& group, Net net) {
  if (plan.model == "syncbn") ddp::convert_sync_batchnorm(net, group);
  ddp::DistributedDataParallel<Net> model(net, group);
  torch::optim::SGD optimizer(model->parameters(), 0.01);
  train(plan, group, [&](const torch::Tensor& x) { return model(x); }, [&] { optimizer.zero_grad(); },
        [&] { optimizer.step(); });
}

void run(const Plan& plan) {
  auto group = ddp::init_process_group({.backend = "gloo", .timeout = plan.timeout});
  ddp::manual_seed(1, group);
  if (plan.model == "ddp") {
    train_wrapped(plan, group, Plain());
  } else if (plan.model == "buffers" || plan.model == "syncbn") {
    train_wrapped(plan, group, Normed());
  } else if (plan.model == "horovod") {
    ddp::horovod::Context hvd(std::move(group));
    Plain net;
    torch::optim::SGD inner(net->parameters(), 0.01);
    ddp::horovod::DistributedOptimizer optimizer(inner, hvd, {.named_parameters = net->named_parameters().pairs()});
    train(plan, hvd.group(), [&](const torch::Tensor& x) { return net(x); }, [&] { optimizer.zero_grad(); },
          [&] { optimizer.step(); });
  } else {
    auto weights = torch::zeros({6}, torch::requires_grad());
    train(plan, group, [&](const torch::Tensor& x) { return x * weights; }, [&] { weights.mutable_grad() = torch::Tensor(); },
          [&] {
            ddp::all_reduce(weights.mutable_grad(), group);
            ddp::barrier(group);
          });
  }
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 6) throw std::invalid_argument("usage: fault_program MODEL FAULT VICTIM STEP TIMEOUT_MS");
  torch::set_num_threads(1);
  run({.model = argv[1],
       .fault = argv[2],
       .victim = std::stoi(argv[3]),
       .step = std::stoi(argv[4]),
       .timeout = std::chrono::milliseconds(std::stoi(argv[5]))});
} catch (const std::exception& error) {
  return ddp::report(error);
}
