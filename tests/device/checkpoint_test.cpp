// Checkpoints of what lies on a device that is not the current one: from it to the host and back, by no other device.
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <c10/core/DeviceGuard.h>

#include <memory>
#include <vector>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/optim/optimizers.h>

#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/device/device.h"
#include "tests/support/rank_checks.h"
#include "tests/support/temporary_folder.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
namespace device = test::device;

constexpr int kPlace = 2;
const c10::Device kDevice = device::device_at(kPlace);

struct Run {
  explicit Run(c10::Device where) {
    net->to(where);
    optimizer = std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions(0.01));
  }
  void train(int64_t steps) {
    const c10::DeviceGuard guard(kDevice);  // what autograd makes is the program's affair
    for (int64_t step = 0; step < steps; ++step) {
      const auto x = (at::arange(24, at::kFloat).view({6, 4}) * static_cast<double>(step + 1)).sin().to(kDevice);
      optimizer->zero_grad();
      scaler.scale(torch::nn::functional::mse_loss(net(x), x.narrow(1, 0, 3).cos())).backward();
      scaler.step(*optimizer);
      scaler.update();
    }
  }
  TrainingState state() { return {.model = net, .optimizer = *optimizer, .scaler = scaler, .rng = false}; }

  test::Net net;
  std::unique_ptr<optim::Adam> optimizer;
  GradScaler scaler;
};

TEST_CASE("Checkpoint: of a model on device 2 is saved from there and loaded to it while device 0 is current") {
  const bool async = GENERATE(false, true);
  INFO((async ? "asynchronous" : "synchronous"));
  const test::TemporaryFolder folder;
  auto group = init_process_group({.device = c10::Device(c10::kCPU)});
  Run saved(kDevice);
  Run loaded(kDevice);
  saved.train(3);
  device::drain();
  device::touched();
  device::forget_counts();
  CheckpointManager checkpoints(folder / "run", group, {.async = async});
  checkpoints.save(3, saved.state());
  checkpoints.wait();
  CHECK(device::counts().to_device == 0);
  if (async) CHECK(device::counts().pageable == 0);
  checkpoints.load(3, loaded.state());
  CHECK(device::touched() == std::vector<int>{kPlace});
  CHECK(device::counts().between_devices == 0);
  for (const at::Tensor& parameter : loaded.net->parameters()) CHECK(parameter.device() == kDevice);
  CHECK(loaded.optimizer->parameter_state(loaded.net->fc1->weight).at("exp_avg").device() == kDevice);
  CHECK(test::equal(test::copy_of(*loaded.net), test::copy_of(*saved.net)));
  saved.train(2);
  loaded.train(2);
  CHECK(test::equal(test::copy_of(*loaded.net), test::copy_of(*saved.net)));
  CHECK(loaded.scaler.get_scale() == saved.scaler.get_scale());
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

TEST_CASE("Checkpoint: of a rank on device 2 has the random numbers of that device") {
  device::drain();
  device::faults();
  const test::TemporaryFolder folder;
  const auto run = [&](const GroupHandle& group) {
    torch::nn::Linear net(2, 2);
    net->to(group.device());
    const auto draw = [&] { return at::rand({8}, at::TensorOptions(group.device())).cpu(); };
    const TrainingState state{.model = net};
    CheckpointManager checkpoints(folder / "run", group);
    draw();
    checkpoints.save(1, state);
    checkpoints.wait();
    const at::Tensor expected = draw();
    draw();
    checkpoints.load(1, state);
    RANK_CHECK(at::equal(draw(), expected));
  };
  spawn(1, run, {.backend = "cuda:nccl", .devices = {kDevice}});
  test::report_rank_checks();
  device::drain();
  CHECK_THAT(device::faults(), IsEmpty());
}

}  // namespace
}  // namespace ddp
