// Streams and memory on three CUDA devices that keep books (tests/support/fake_cuda.h).
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/cloneable.h>

#include <functional>
#include <tuple>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/spawn.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/data_parallel.h>

#include "checkpoint/host_snapshot.h"
#include "ddp/data_parallel/device_threads.h"
#include "tests/support/catch.h"
#include "tests/support/fake_cuda.h"
#include "tests/support/gradient_buckets.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using Catch::Matchers::IsEmpty;
using test::ElementsAre;

const c10::Device kFirst(c10::kCUDA, 0);

struct ScaleImpl : torch::nn::Cloneable<ScaleImpl> {
  ScaleImpl() { reset(); }
  void reset() override { factor = register_parameter("factor", at::ones({3})); }
  at::Tensor forward(const at::Tensor& x) { return x * factor; }
  at::Tensor factor;
};
TORCH_MODULE(Scale);

// Current streams of all devices that are not the default ones, as a program has under its own guards.
class OnOwnStreams {
 protected:
  OnOwnStreams() { test::stream_faults(); }

  const bool is_faked_ = (test::use_fake_cuda(), true);  // before the first stream
  std::vector<c10::Stream> streams_{test::new_stream(0), test::new_stream(1), test::new_stream(2)};
  c10::MultiStreamGuard guard_{streams_};
};

TEST_CASE_METHOD(OnOwnStreams, "OnOwnStreams: the books find use without waiting and freeing too early") {
  at::Tensor x = at::ones({3}, at::TensorOptions(kFirst));
  {
    const c10::StreamGuard other(test::new_stream(0));
    x.add(1);
  }
  UNSCOPED_INFO("the reader does not wait for the writer");
  CHECK(test::stream_faults().size() == 1U);
  x.reset();
  INFO("freed while the other stream may be reading");
  CHECK(test::stream_faults().size() == 1U);
}

TEST_CASE_METHOD(OnOwnStreams, "OnOwnStreams: workers have the callers streams of all devices") {
  DeviceThreads threads({kFirst, {c10::kCUDA, 1}, {c10::kCUDA, 2}});
  const auto look = [](std::vector<c10::Stream>& seen) {
    for (c10::DeviceIndex i = 0; i < 3; ++i) {
      seen.push_back(c10::impl::VirtualGuardImpl(c10::kCUDA).getStream({c10::kCUDA, i}));
    }
  };
  for (int round = 0; round < 2; ++round) {
    std::vector<c10::Stream> seen[3];
    c10::DeviceIndex device[3];
    std::vector<std::function<void()>> tasks;
    for (int i = 0; i < 3; ++i) {
      tasks.emplace_back([&, i] {
        look(seen[i]);
        device[i] = c10::impl::VirtualGuardImpl(c10::kCUDA).getDevice().index();
        c10::impl::VirtualGuardImpl(c10::kCUDA).setDevice({c10::kCUDA, 2});  // must not reach the next round
      });
    }
    threads.run(tasks);
    for (auto& streams : seen) CHECK(streams == streams_);
    CHECK_THAT(device, ElementsAre(0, 1, 2));
    streams_ = {test::new_stream(0), test::new_stream(1), test::new_stream(2)};
    for (const c10::Stream stream : streams_) c10::impl::VirtualGuardImpl(c10::kCUDA).exchangeStream(stream);
  }
}

TEST_CASE_METHOD(OnOwnStreams, "OnOwnStreams: workers have the callers modes") {
  DeviceThreads threads({c10::Device(c10::kCPU), c10::Device(c10::kCPU)});
  const auto see = [&] {
    bool records = true;
    bool inference = false;
    bool casts = false;
    bool caches = true;
    at::ScalarType dtype = at::kFloat;
    const auto errors = threads.run({[] {},
                                     [&] {
                                       records = at::GradMode::is_enabled();
                                       inference = c10::InferenceMode::is_enabled();
                                       casts = at::autocast::is_autocast_enabled(at::kCPU);
                                       caches = at::autocast::is_autocast_cache_enabled();
                                       dtype = at::autocast::get_autocast_dtype(at::kCPU);
                                     }});
    return std::tuple(records, inference, casts, caches, dtype);
  };
  const auto before = see();
  at::autocast::set_autocast_enabled(at::kCPU, true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kHalf);
  at::autocast::set_autocast_cache_enabled(false);
  {
    const c10::InferenceMode inference;
    CHECK(see() == std::tuple(false, true, true, false, at::kHalf));
  }
  at::autocast::set_autocast_cache_enabled(true);
  at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  at::autocast::set_autocast_enabled(at::kCPU, false);
  CHECK(see() == before);
}

TEST_CASE_METHOD(OnOwnStreams,
                 "OnOwnStreams: data parallel waits for the batchs producer and its results are waited for") {
  Scale net;
  net->to(kFirst);
  DataParallel<Scale> model(net);
  REQUIRE(model->devices().size() == 3U);
  for (int step = 0; step < 3; ++step) {
    const at::Tensor x = at::arange(18, at::TensorOptions().dtype(at::kFloat)).view({6, 3}).to(kFirst).mul(2);
    const at::Tensor y = model(x);
    UNSCOPED_INFO("forward, step " << step);
    CHECK_THAT(test::stream_faults(), IsEmpty());
    y.sum().backward();
    CHECK(at::equal(net->factor.grad().cpu(), x.sum(0).cpu()));
    net->zero_grad();
    INFO("backward, step " << step);
    CHECK_THAT(test::stream_faults(), IsEmpty());
  }
}

class Hooks : public OnOwnStreams {
 protected:
  static void run(const std::function<CommHook(const GroupHandle&)>& make, int steps) {
    spawn(1,
          [&](const GroupHandle& group) {
            const c10::StreamGuard own(test::new_stream(0));
            const CommHook hook = make(group);
            const std::vector<at::Tensor> parameters{at::ones({8, 6}, at::TensorOptions(kFirst)),
                                                     at::ones({5}, at::TensorOptions(kFirst))};
            for (int step = 0; step < steps; ++step) {
              const at::Tensor buffer = at::ones({53}, at::TensorOptions(kFirst)).mul(step + 1);
              test::run_hook(hook, buffer, parameters);
              buffer.sum();
            }
          },
          {.backend = "local", .devices = {kFirst}});
    RANK_CHECK_THAT(test::stream_faults(), IsEmpty());
  }
};

TEST_CASE_METHOD(Hooks, "Hooks: power SGD keeps its memory to one stream") {
  for (const bool warm_start : {true, false}) {
    run(
        [&](const GroupHandle& group) {
          return hooks::power_sgd(
              make_power_sgd_state(group, {.start_iteration = 2, .min_compression_rate = 1, .warm_start = warm_start}));
        },
        6);
  }
}

TEST_CASE_METHOD(Hooks, "Hooks: compression tells the allocator of the stream that writes the bucket") {
  run([](const GroupHandle& group) { return hooks::fp16_compress(group); }, 3);
  run([](const GroupHandle& group) { return hooks::bf16_compress_wrapper(hooks::all_reduce(group)); }, 3);
}

TEST_CASE_METHOD(OnOwnStreams, "OnOwnStreams: a snapshot may be taken on another stream than the models own") {
  HostSnapshot snapshot;
  at::Tensor weight = at::ones({4}, at::TensorOptions(kFirst)).mul(3);
  {
    test::wait_for_fake_cuda();
    const c10::StreamGuard other(test::new_stream(0));
    const TensorMap copied = snapshot.take("model", {{"weight", weight}});
    snapshot.wait();
    CHECK(copied.at("weight").sum().item<float>() == 12);
  }
  weight.reset();
  CHECK_THAT(test::stream_faults(), IsEmpty());
}

TEST_CASE_METHOD(OnOwnStreams, "OnOwnStreams: a result may be waited for on another stream than it was started on") {
  spawn(1,
        [](const GroupHandle& group) {
          const c10::StreamGuard own(test::new_stream(0));
          const at::Tensor a = at::ones({3}, at::TensorOptions(kFirst));
          const at::Tensor b = at::ones({2}, at::TensorOptions(kFirst));
          auto sums = all_reduce_coalesced_async({a, b}, group);
          auto rows = all_gather_async(a, group);
          c10::Event begun(c10::kCUDA);
          begun.record(own.current_stream());
          const c10::StreamGuard other(test::new_stream(0));
          begun.block(other.current_stream());  // as NCCL's wait() makes the current stream wait
          sums.wait();
          rows.wait().add(1);
        },
        {.backend = "local", .devices = {kFirst}});
  CHECK_THAT(test::stream_faults(), IsEmpty());
}

}  // namespace
}  // namespace ddp
