// What a training step makes the host wait for on a simulated device: nothing; and the ways that data take.
#include <torch/nn/functional/loss.h>

#include <string>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/synthetic_images.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/adam.h>
#include <ddprun/samplers/distributed_sampler.h>

#include "examples/models/lenet.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
namespace device = test::device;

TEST_CASE("Waits: a step of DDP, GradScaler, fused AdamW and DeviceLoader has none, and no pageable copy") {
  device::faults();
  spawn(1,
        [](const GroupHandle& group) {
          const SyntheticImages images({.size = 64, .channels = 3, .height = 32, .width = 32, .classes = 10});
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
            if (step++ == kWarmUp) device::forget_counts();
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
          const device::Counts counts = device::counts();
          RANK_CHECK(counts.host_waits == std::vector<std::string>{});
          RANK_CHECK(counts.pageable == 0);
          RANK_CHECK(counts.to_device > 0);
          RANK_CHECK(counts.to_host == 0);
        },
        {.backend = "cpu:gloo,cuda:nccl", .devices = {device::device_at(0)}});
  test::report_rank_checks();
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

}  // namespace
}  // namespace ddp
