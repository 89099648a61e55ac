// What the parts of the library that have their place in a training step make the host wait for on a simulated device:
// nothing.
#include <torch/nn/cloneable.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <ddprun/amp/amp.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/data_parallel.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/horovod/horovod.h>
#include <ddprun/metrics/metrics.h>
#include <ddprun/optim/averaged_model.h>
#include <ddprun/optim/clip_grad.h>
#include <ddprun/optim/larc.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/optim/zero_redundancy_optimizer.h>
#include <ddprun/syncbn/conversion.h>

#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
namespace device = test::device;

constexpr int kPartRanks = 2;

// With buffers, which DistributedDataParallel broadcasts.
struct NormedImpl : torch::nn::Cloneable<NormedImpl> {
  NormedImpl() { reset(); }
  void reset() override {
    conv = register_module("conv", torch::nn::Conv2d(3, 4, 3));
    norm = register_module("norm", torch::nn::BatchNorm2d(4));
    head = register_module("head", torch::nn::Linear(4, 10));
  }
  at::Tensor forward(const at::Tensor& x) { return head(torch::relu(norm(conv(x))).mean({2, 3})); }
  torch::nn::Conv2d conv{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Normed);

using Step = std::function<void()>;
using Optimizer = torch::optim::Optimizer;
const optim::SGDOptions kOptions = optim::SGDOptions(0.1).momentum(0.9).weight_decay(0.01);

struct Batch {
  explicit Batch(c10::Device device)
      : data(at::ones({4, 3, 6, 6}, at::TensorOptions(device))),
        target(at::zeros({4}, at::TensorOptions(device).dtype(at::kLong))) {}
  at::Tensor loss_of(const at::Tensor& scores) const {
    return torch::nn::functional::cross_entropy(scores.to(at::kFloat), target);
  }
  at::Tensor data;
  at::Tensor target;
};

Normed net_on(c10::Device device) {
  Normed net;
  net->to(device);
  return net;
}

using MakeOptimizer = std::function<std::shared_ptr<Optimizer>(const Normed& net, const GroupHandle& group)>;
template <typename Kind>
std::shared_ptr<Optimizer> plain(const Normed& net, const GroupHandle& /*group*/) {
  return std::make_shared<Kind>(net->parameters(), kOptions);
}

// `before_step` comes between backward and the optimizer's step, with the scores.
Step ddp_step(const GroupHandle& group, const DdpOptions& options, const MakeOptimizer& make = &plain<optim::SGD>,
              std::function<void(const Normed& net, const at::Tensor& scores)> before_step = {}) {
  Normed net = net_on(group.device());
  convert_sync_batchnorm(net, group);
  const auto model = std::make_shared<DistributedDataParallel<Normed>>(net, group, options);
  return [model, net, optimizer = make(net, group), batch = Batch(group.device()), before_step] {
    optimizer->zero_grad();
    const at::Tensor scores = (*model)(batch.data);
    batch.loss_of(scores).backward();
    if (before_step) before_step(net, scores);
    optimizer->step();
  };
}

template <bool kInBuckets>
std::shared_ptr<Optimizer> sharded(const Normed& net, const GroupHandle& group) {
  return std::make_shared<ZeroRedundancyOptimizer<optim::SGD>>(net->parameters(), kOptions, group,
                                                               ZeroOptions{.parameters_as_bucket_view = kInBuckets});
}

Step apex_step(const GroupHandle& group, const std::string& level) {
  Normed net = net_on(group.device());
  const auto optimizer = std::make_shared<optim::SGD>(net->parameters(), kOptions);
  auto amp = amp::initialize(net, *optimizer, {.opt_level = level, .dtype = at::kHalf, .group = group});
  auto mixed = amp.model(net);
  const auto model = std::make_shared<DistributedDataParallel<decltype(mixed)>>(mixed, group);
  return [net, amp, optimizer, model, batch = Batch(group.device())]() mutable {
    optimizer->zero_grad();
    at::Tensor loss;
    {
      const auto autocast = amp.autocast();
      loss = batch.loss_of((*model)(batch.data));
    }
    amp.scale_loss(loss, *optimizer).backward();
    amp.step(*optimizer);
  };
}

Step horovod_step(const GroupHandle& group) {
  Normed net = net_on(group.device());
  const auto inner = std::make_shared<optim::SGD>(net->parameters(), kOptions);
  const auto optimizer = std::make_shared<horovod::DistributedOptimizer>(*inner, group);
  return [net, inner, optimizer, batch = Batch(group.device())]() mutable {
    optimizer->zero_grad();
    batch.loss_of(net->forward(batch.data)).backward();
    optimizer->step();
  };
}

Step agreeing_step(const GroupHandle& group) {
  Normed net = net_on(group.device());
  const auto optimizer = std::make_shared<optim::SGD>(net->parameters(), kOptions);
  const auto scaler = std::make_shared<GradScaler>(
      GradScalerOptions{.device = group.device().type(), .group = group, .agree_on_found_inf = true});
  return [net, optimizer, scaler, batch = Batch(group.device())]() mutable {
    optimizer->zero_grad();
    scaler->scale(batch.loss_of(net->forward(batch.data))).backward();
    scaler->unscale_(*optimizer);
    optim::clip_grad_norm_(net->parameters(), 1.0);
    scaler->step(*optimizer);
    scaler->update();
  };
}

Step measured_step(const GroupHandle& group) {
  const auto accuracy = std::make_shared<Accuracy>(std::vector<int64_t>{1, 5});
  const auto mean = std::make_shared<Average>();
  const auto average = std::make_shared<optim::AveragedModel<Normed>>(net_on(group.device()));
  return ddp_step(group, {}, &plain<optim::SGD>, [=, batch = Batch(group.device())](auto& net, auto& scores) {
    accuracy->update(scores, batch.target);
    mean->update(batch.loss_of(scores.detach()), 4);
    (*average)->update_parameters(net);
  });
}

struct Part {
  const char* name;
  std::function<Step(const GroupHandle& group)> prepare;
};

const std::vector<Part>& parts() {
  static const std::vector<Part> all{
      {"SyncBatchNorm and broadcast buffers", [](const GroupHandle& group) { return ddp_step(group, {}); }},
      {"buckets that are not views",
       [](const GroupHandle& group) { return ddp_step(group, {.gradient_as_bucket_view = false}); }},
      {"delayed parameters",
       [](const GroupHandle& group) {
         return ddp_step(group, {.delayed = {.names = {"head.weight"}, .trigger = "conv.weight"}});
       }},
      {"PowerSGD",
       [](const GroupHandle& group) {
         return ddp_step(group, {.comm_hook = hooks::power_sgd(
                                     make_power_sgd_state(group, {.start_iteration = 2, .min_compression_rate = 1}))});
       }},
      {"bf16", [](const GroupHandle& group) { return ddp_step(group, {.comm_hook = hooks::bf16_compress(group)}); }},
      {"Larc", [](const GroupHandle& group) { return ddp_step(group, {}, &plain<optim::Larc<optim::SGD>>); }},
      {"ZeRO-1", [](const GroupHandle& group) { return ddp_step(group, {}, &sharded<false>); }},
      {"ZeRO-1 in buckets", [](const GroupHandle& group) { return ddp_step(group, {}, &sharded<true>); }},
      {"O1", [](const GroupHandle& group) { return apex_step(group, "O1"); }},
      {"O2", [](const GroupHandle& group) { return apex_step(group, "O2"); }},
      {"Horovod", &horovod_step},
      {"a GradScaler of all ranks, and clipping", &agreeing_step},
      {"metrics and an average of the model", &measured_step},
  };
  return all;
}

TEST_CASE("Waits: no part of the library that has its place in a step adds one") {
  device::faults();
  std::vector<device::Counts> counts(parts().size());
  std::barrier all(kPartRanks);
  spawn(kPartRanks,
        [&](const GroupHandle& group) {
          for (size_t i = 0; i < parts().size(); ++i) {
            const Step step = parts()[i].prepare(group);
            for (int warm_up = 0; warm_up < 11; ++warm_up) step();
            all.arrive_and_wait();
            if (group.rank() == 0) device::forget_counts();
            all.arrive_and_wait();
            for (int rest = 0; rest < 3; ++rest) step();
            all.arrive_and_wait();
            if (group.rank() == 0) counts[i] = device::counts();
            all.arrive_and_wait();
          }
        },
        {.backend = "cpu:gloo,cuda:nccl", .devices = {device::device_at(0), device::device_at(1)}});
  for (size_t i = 0; i < parts().size(); ++i) {
    INFO(parts()[i].name);
    CHECK_THAT(counts[i].host_waits, IsEmpty());
    CHECK(counts[i].pageable == 0);
    CHECK(counts[i].to_host == 0);
    CHECK(counts[i].between_devices == 0);
    CHECK(counts[i].launches > 0);
  }
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE("Waits: a step of DataParallel has none") {
  device::faults();
  const Normed net = net_on(device::device_at(0));
  DataParallel<Normed> model(net, {.device_ids = {0, 1, 2}});
  optim::SGD optimizer(net->parameters(), kOptions);
  const Batch batch(device::device_at(0));
  for (int step = 0; step < 4; ++step) {
    if (step == 2) device::forget_counts();
    optimizer.zero_grad();
    batch.loss_of(model(batch.data)).backward();
    optimizer.step();
  }
  const device::Counts counts = device::counts();
  CHECK_THAT(counts.host_waits, IsEmpty());
  CHECK(counts.pageable == 0);
  CHECK(counts.to_host == 0);
  CHECK(counts.between_devices > 0);
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

}  // namespace
}  // namespace ddp
