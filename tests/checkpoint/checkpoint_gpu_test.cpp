// On a machine with a GPU: checkpoints of what is on it.
#include <ATen/Context.h>
#include <ATen/Functions.h>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/checkpoint/checkpoint_manager.h>
#include <ddprun/optim/optimizers.h>

#include "tests/checkpoint/nets.h"
#include "tests/support/catch.h"
#include "tests/support/gpu_waits.h"
#include "tests/support/temporary_folder.h"

namespace ddp::checkpoint_on_gpu {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

class OnGpu {
 protected:
  OnGpu() { at::globalContext().setDeterministicCuDNN(true); }

  ProcessGroup group_ = init_process_group({.device = kGpu});
  test::TemporaryFolder folder_;
};

// A net on a device with all that its training needs.
struct Run {
  explicit Run(c10::Device device) {
    net->to(device);
    optimizer = std::make_unique<optim::Adam>(net->parameters(), optim::AdamOptions(0.01));
  }
  void train(int64_t first, int64_t steps) {
    const auto device = net->fc1->weight.device();
    for (auto step = first; step < first + steps; ++step) {
      const auto noise = at::rand({6, 4}, at::TensorOptions(device));
      const auto x = (at::arange(24, at::kFloat).view({6, 4}) * (step + 1)).sin().to(device) + noise;
      optimizer->zero_grad();
      at::Tensor loss;
      {
        const Autocast autocast(device);
        loss = torch::nn::functional::mse_loss(net(x), x.narrow(1, 0, 3).cos());
      }
      scaler.scale(loss).backward();
      scaler.step(*optimizer);
      scaler.update();
    }
  }
  TrainingState state() { return {.model = net, .optimizer = *optimizer, .scaler = scaler}; }

  test::Net net;
  std::unique_ptr<optim::Adam> optimizer;
  GradScaler scaler{{.growth_interval = 3}};
};

TEST_CASE_METHOD(OnGpu, "OnGpu: a run goes on from its checkpoint bit for bit, random numbers of the GPU included") {
  const bool async = GENERATE(false, true);
  Run undisturbed(kGpu);
  {
    CheckpointManager checkpoints(folder_ / "run", group_, {.async = async});
    undisturbed.train(0, 5);
    checkpoints.save(5, undisturbed.state());
    undisturbed.train(5, 5);
  }
  Run resumed(kGpu);
  CheckpointManager checkpoints(folder_ / "run", group_);
  REQUIRE(checkpoints.load_latest(resumed.state())->step == 5);
  CHECK(resumed.net->fc1->weight.device() == kGpu);
  resumed.train(5, 5);
  CHECK(test::equal(test::copy_of(*resumed.net), test::copy_of(*undisturbed.net)));
  CHECK(resumed.scaler.get_scale() == undisturbed.scaler.get_scale());
}

TEST_CASE_METHOD(OnGpu, "OnGpu: a save holds the weights of its moment, those that the GPU still computes included") {
  const bool async = GENERATE(false, true);
  torch::nn::Linear net(1024, 1024);
  net->to(kGpu);
  const at::Tensor busy = at::rand({4096, 4096}, at::TensorOptions(kGpu));
  const at::NoGradGuard no_grad;
  CheckpointManager checkpoints(folder_ / "run", group_, {.async = async});
  for (int64_t step = 1; step <= 3; ++step) {
    for (int i = 0; i < 30; ++i) busy.mm(busy);
    net->weight.fill_(static_cast<double>(step));
    checkpoints.save(step, {.model = net});
    net->weight.fill_(-1);
  }
  checkpoints.wait();
  for (int64_t step = 1; step <= 3; ++step) {
    checkpoints.load(step, {.model = net});
    CHECK((net->weight == static_cast<double>(step)).all().item<bool>());
  }
}

TEST_CASE_METHOD(OnGpu, "OnGpu: an asynchronous save does not wait for the GPU") {
  Run run(kGpu);
  run.train(0, 2);
  CheckpointManager checkpoints(folder_ / "run", group_, {.async = true});
  checkpoints.save(1, run.state());  // makes its stream and its page-locked memory
  checkpoints.wait();
  const test::NoGpuWaits none;
  checkpoints.save(2, {.model = run.net, .rng = false});
}

TEST_CASE_METHOD(OnGpu, "OnGpu: a checkpoint of the GPU loads on the CPU and the other way round") {
  const auto [from, to] = GENERATE(table<c10::Device, c10::Device>({{kGpu, c10::kCPU}, {c10::kCPU, kGpu}}));
  CheckpointManager checkpoints(folder_ / "run", group_, {.notify = [](const std::string&) {}});
  Run saved(from);
  if (from == kGpu) saved.train(0, 3);
  checkpoints.save(3, {.model = saved.net, .optimizer = *saved.optimizer});
  Run loaded(to);
  checkpoints.load(3, {.model = loaded.net, .optimizer = *loaded.optimizer});
  CHECK(loaded.net->fc1->weight.device() == to);
  for (const auto& [name, tensor] : test::copy_of(*saved.net)) {
    INFO(name);
    CHECK(test::copy_of(*loaded.net).at(name).cpu().equal(tensor.cpu()));
  }
  if (from == kGpu) {
    CHECK(loaded.optimizer->parameter_state(loaded.net->fc1->weight).at("exp_avg").device() == to);
  }
}

}  // namespace
}  // namespace ddp::checkpoint_on_gpu
