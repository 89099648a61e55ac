// What belongs to one device stays with it, though another is current or others are used beside it.
#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <c10/core/DeviceGuard.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <string>
#include <vector>

#include <ddprun/comm/spawn.h>
#include <ddprun/data/device_loader.h>
#include <ddprun/data/image_datasets.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/samplers/sequential_sampler.h>

#include "checkpoint/host_snapshot.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
namespace device = test::device;

TEST_CASE("OwnDevice: a loader for a device without a number takes the current one") {
  device::drain();
  device::faults();
  const c10::Device second = device::device_at(2);
  const c10::DeviceGuard guard(second);
  const SyntheticImages images({.size = 8, .channels = 1, .height = 4, .width = 4, .classes = 3});
  SequentialSampler sampler(images.size());
  device::touched();
  DeviceLoader loader(images, sampler, c10::Device(second.type()), {.batch_size = 4, .workers = 1});
  for (auto& batch : loader) {
    CHECK(batch.data.device() == second);
    CHECK(batch.target.add(1).device() == second);
  }
  CHECK(device::touched() == std::vector<int>{2});
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE("OwnDevice: a snapshot of a model on two devices waits for both") {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    INFO("schedule " << seed);
    device::drain();
    device::faults();
    device::set_schedule(seed);
    HostSnapshot snapshot;
    TensorMap tensors;
    for (int index = 0; index < 2; ++index) {
      at::Tensor busy = at::full({128, 128}, 1.F / 128, at::TensorOptions(device::device_at(index)));
      for (int i = 0; i < 5; ++i) busy = busy.mm(busy).mul(1 + index);  // the copies come late
      tensors.emplace("weight of " + std::to_string(index), busy);
    }
    const TensorMap copied = snapshot.take("model", tensors);
    for (const auto& [name, tensor] : tensors) tensor.zero_();
    snapshot.wait();
    for (const auto& [name, tensor] : copied) {
      INFO(name);
      CHECK(tensor.min().item<float>() > 0);
    }
    device::drain();
    CHECK_THAT(device::faults(), IsEmpty());
  }
}

// The host's clock says what the device needs only where the host waits for it at both ends.
TEST_CASE("OwnDevice: while the size of the buckets is measured each time begins and ends with the device idle") {
  device::drain();
  std::vector<std::string> waits;
  spawn(2,
        [&](const GroupHandle& group) {
          torch::nn::Linear net(64, 64);
          net->to(group.device());
          DistributedDataParallel<torch::nn::Linear> model(net, group, {.bucket_cap_bytes = kAutoBucketCap});
          const at::Tensor x = at::ones({2, 64}, at::TensorOptions(group.device()));
          const auto step = [&] { model(x).sum().backward(); };
          step();
          if (group.rank() == 0) device::forget_counts();
          for (int i = 0; i < 3; ++i) step();
          if (group.rank() == 0) waits = device::counts().host_waits;
        },
        {.backend = "cpu:gloo,cuda:nccl", .devices = {device::device_at(0), device::device_at(1)}});
  const auto synchronised =
      std::ranges::count_if(waits, [](const std::string& wait) { return wait.starts_with("synchronizeDevice"); });
  CHECK(synchronised >= 4);
  device::drain();
}

}  // namespace
}  // namespace ddp
