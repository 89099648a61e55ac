// What a training step makes the host wait for on a simulated device: nothing; and the ways that data take.
#include <torch/nn/functional/loss.h>

#include <barrier>
#include <functional>
#include <string>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "examples/models/lenet.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
namespace device = test::device;

constexpr int kRanks = 2;

TEST_CASE("Waits: a step of DDP, GradScaler, fused AdamW and DeviceLoader has none, and no pageable copy") {
  device::faults();
  std::barrier all(kRanks);  // of the host: a collective would wait
  const auto alone = [&](const GroupHandle& group, const std::function<void()>& action) {
    all.arrive_and_wait();
    if (group.rank() == 0) action();
    all.arrive_and_wait();
  };
  device::Counts counts;
  spawn(kRanks,
        [&](const GroupHandle& group) {
          const SyntheticImages images({.size = 64 * kRanks, .channels = 3, .height = 32, .width = 32, .classes = 10});
          DistributedSampler sampler(static_cast<size_t>(images.size()), group, {.seed = 0});
          DeviceLoader loader(images, sampler, group.device(), {.batch_size = 4, .workers = 1});
          models::LeNet net(10);
          net->to(group.device());
          DistributedDataParallel<models::LeNet> model(net, group);
          optim::AdamW optimizer(net->parameters());
          GradScaler scaler({.device = group.device().type(), .group = group});
          int step = 0;
          for (auto& batch : loader) {
            constexpr int kWarmUp = 11;  // until the logger's own measuring ends
            if (step++ == kWarmUp) alone(group, device::forget_counts);
            optimizer.zero_grad();
            at::Tensor loss;
            {
              const Autocast autocast(group.device());
              loss = torch::nn::functional::cross_entropy(model(batch.data), batch.target);
            }
            scaler.scale(loss).backward();
            scaler.step(optimizer);
            scaler.update();
          }
          RANK_CHECK(step == 16);
          alone(group, [&] { counts = device::counts(); });
        },
        {.backend = "cpu:gloo,cuda:nccl", .devices = {device::device_at(0), device::device_at(1)}});
  test::report_rank_checks();
  CHECK_THAT(counts.host_waits, IsEmpty());
  CHECK(counts.pageable == 0);
  CHECK(counts.to_device > 0);
  CHECK(counts.to_host ==
        2 * kRanks);  // scale and tracker in the 16th step, into pinned memory: for the floor's warning
  CHECK(counts.between_devices == 0);
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

}  // namespace
}  // namespace ddp
