// While a CUDA graph is captured, calls that need the host are refused with a sentence. The stream is said to be
// captured; tensors are on the CPU, or on devices that are none (tests/support/fake_cuda.h).
#include <ATen/ops/ones.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/clip_grad.h>
#include <ddprun/optim/optimizers.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "checkpoint/host_snapshot.h"
#include "comm/core/graph_capture.h"
#include "ddprun/data/device_loader.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gradient_buckets.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using test::error_of;

// Before anything asks LibTorch about CUDA.
class Capture {
 protected:
  Capture() { test::use_fake_cuda(); }
};

class Capturing {
 public:
  Capturing() : before_(detail::set_capture_probe([] { return true; })) {}
  ~Capturing() { detail::set_capture_probe(before_); }

 private:
  detail::CaptureProbe before_;
};

auto refusal(const char* what) {
  return test::ContainsAll({what, "cannot be captured in a CUDA graph: "});
}

template <typename Call>
std::string refused(Call call) {
  const Capturing capturing;
  return error_of<std::runtime_error>(call);
}

using Model = DistributedDataParallel<torch::nn::Linear>;

void train(Model& model, int steps) {
  for (int step = 0; step < steps; ++step) model(at::ones({2, 3})).sum().backward();
}

void in_a_job_of_one(const std::function<void(const GroupHandle&)>& body) {
  spawn(1, body, {.backend = "local", .devices = {c10::Device(c10::kCPU)}});
}

TEST_CASE_METHOD(Capture, "Capture: a model must be wrapped before and warmed up for eleven iterations") {
  in_a_job_of_one([](const GroupHandle& group) {
    const DdpOptions options{.comm_hook = hooks::all_reduce(group)};
    RANK_CHECK_THAT(refused([&] { Model(torch::nn::Linear(3, 2), group, options); }), refusal("wrapping a model"));
    Model model(torch::nn::Linear(3, 2), group, options);
    train(model, 10);
    RANK_CHECK_THAT(refused([&] { train(model, 1); }),
                    refusal("forward") && ContainsSubstring("11 iterations") && ContainsSubstring("had 10"));
    train(model, 1);
    {
      const Capturing capturing;
      train(model, 1);
      const at::NoGradGuard evaluation;
      model(at::ones({2, 3}));
    }
    train(model, 100 - 12 - 1);
    RANK_CHECK_THAT(refused([&] { train(model, 1); }), ContainsSubstring("this is number 100"));
    train(model, 1);
    RANK_CHECK_THAT(refused([&] { train(model, 1); }), ContainsSubstring("this is number 101"));
    train(model, 1);
    const Capturing capturing;
    train(model, 1);
  });
}

TEST_CASE_METHOD(Capture, "Capture: options that need the host are refused") {
  in_a_job_of_one([](const GroupHandle& group) {
    const auto refusal_with = [&](DdpOptions options) {
      options.comm_hook = hooks::all_reduce(group);
      Model model(torch::nn::Linear(3, 2), group, options);
      train(model, 12);
      return refused([&] { train(model, 1); });
    };
    RANK_CHECK_THAT(refusal_with({.find_unused_parameters = true}), refusal("find_unused_parameters"));
    RANK_CHECK_THAT(refusal_with({.check_gradients = true}), refusal("check_gradients"));
  });
  spawn(1,
        [](const GroupHandle& group) {
          Model model(torch::nn::Linear(3, 2), group);
          train(model, 12);
          RANK_CHECK_THAT(refused([&] { train(model, 1); }), refusal("backend gloo"));
        },
        {.backend = "gloo", .devices = {c10::Device(c10::kCPU)}});
}

TEST_CASE_METHOD(Capture, "Capture: hooks that change with the iterations are refused until they have") {
  in_a_job_of_one([](const GroupHandle& group) {
    const std::vector<at::Tensor> parameters{at::ones({8, 6})};
    const auto run = [&](const CommHook& hook) { test::run_hook(hook, at::ones({48}), parameters); };
    const CommHook power =
        hooks::power_sgd(make_power_sgd_state(group, {.start_iteration = 2, .min_compression_rate = 1}));
    for (int step = 0; step < 3; ++step) {
      RANK_INFO(step);
      RANK_CHECK_THAT(refused([&] { run(power); }), refusal("power_sgd"));
      run(power);
    }
    const CommHook local = hooks::post_local_sgd(group, {.start_iteration = 1, .post_local_gradient_allreduce = false});
    RANK_CHECK_THAT(refused([&] { run(local); }), refusal("post_local_sgd"));
    run(local);
    PeriodicModelAverager averager(group, 2);
    RANK_CHECK_THAT(refused([&] { averager.average_parameters(parameters); }), refusal("PeriodicModelAverager"));
    const Capturing capturing;
    run(power);
    run(local);
  });
}

TEST_CASE_METHOD(Capture, "Capture: scalers must not read the device") {
  torch::nn::Linear net(3, 2);
  GradScaler scaler({.device = c10::kCPU});
  torch::optim::SGD plain(net->parameters(), 0.1);
  optim::SGD fused(net->parameters(), optim::SGDOptions(0.1));
  scaler.scale(net(at::ones({2, 3})).sum()).backward();
  CHECK_THAT(refused([&] { scaler.step(plain); }), refusal("GradScaler::step") && ContainsSubstring("ddp::optim"));
  CHECK_THAT(refused([&] { scaler.get_scale(); }), refusal("GradScaler::get_scale"));
  CHECK_THAT(refused([&] { scaler.state_dict(); }), refusal("GradScaler::get_scale"));
  CHECK_THAT(refused([&] { optim::clip_grad_norm_(net->parameters(), 1, {.error_if_nonfinite = true}); }),
             refusal("clip_grad_norm_"));
  const Capturing capturing;
  optim::clip_grad_norm_(net->parameters(), 1);
  scaler.step(fused);
  scaler.update();
}

TEST_CASE_METHOD(Capture, "Capture: sync batch norm compares the ranks before") {
  spawn(2,
        [](const GroupHandle& group) {
          SyncBatchNorm norm(3, group);
          SyncBatchNorm average(SyncBatchNormOptions(3, group).momentum(std::nullopt));
          const at::Tensor x = at::ones({2, 3}) * group.rank();
          // One probe for both ranks.
          static std::atomic<int> arrived{0};
          const auto meet = [] {
            for (const int target = arrived.fetch_add(1) / 2 * 2 + 2; arrived < target;) std::this_thread::yield();
          };
          if (group.rank() == 0) detail::set_capture_probe([] { return true; });
          meet();
          RANK_CHECK_THAT(error_of<std::runtime_error>([&] { norm(x); }), refusal("first forward"));
          RANK_CHECK_THAT(error_of<std::runtime_error>([&] { average(x); }),
                          ContainsSubstring("cannot be captured in a CUDA graph"));
          meet();
          if (group.rank() == 0) detail::set_capture_probe(nullptr);
        },
        {.backend = "gloo", .devices = {c10::Device(c10::kCPU), c10::Device(c10::kCPU)}});
}

TEST_CASE_METHOD(Capture, "Capture: loaders and snapshots are refused on devices only") {
  const c10::Device device(c10::kCUDA, 0);
  detail::DevicePlacement transfer(device);
  const Batch batch{.data = at::ones({2}), .target = at::ones({2})};
  CHECK_THAT(refused([&] { transfer.start(batch); }), refusal("a loader's copy"));
  transfer.start(batch);
  CHECK_THAT(refused([&] { transfer.finish(); }), refusal("a loader's copy"));
  CHECK(transfer.finish().data.is_cuda());
  HostSnapshot snapshot;
  CHECK_THAT(refused([&] {
               snapshot.take("model", {{"weight", at::ones({2}, at::TensorOptions(device))}});
             }),
             refusal("a checkpoint's copy"));
  const Capturing capturing;
  detail::DevicePlacement on_cpu{c10::Device(c10::kCPU)};
  on_cpu.start(batch);
  on_cpu.finish();
  snapshot.take("model", {{"bias", at::ones({2})}});
}

}  // namespace
}  // namespace ddp
