// On a machine with a GPU: NCCL with one rank, and two ranks that share the GPU over gloo (started by ddprun).
#include <torch/cuda.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include <ddprun/amp/autocast.h>
#include <ddprun/amp/grad_scaler.h>
#include <ddprun/comm/collectives.h>
#include <ddprun/comm/manual_seed.h>
#include <ddprun/ddp/comm_hooks.h>
#include <ddprun/ddp/distributed_data_parallel.h>
#include <ddprun/optim/optimizers.h>

#include "tests/support/catch.h"
#include "tests/support/gpu_waits.h"
#include "tests/support/rank_checks.h"

namespace ddp::ddp_on_gpu {
namespace {

using Catch::Matchers::ContainsSubstring;

// The mean loss gradient of a linear layer after some steps on `device`, with data that does not depend on the rank
// count.
at::Tensor train(const GroupHandle& group, c10::Device device, const DdpOptions& options = {}) {
  manual_seed(3, group);
  torch::nn::Linear net(8, 4);
  net->to(device);
  DistributedDataParallel<torch::nn::Linear> model(net, group, options);
  torch::optim::SGD optimizer(net->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  for (int step = 0; step < 20; ++step) {
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(step));
    const auto x = torch::randn({8, 8}, generator);
    const auto share = x.chunk(group.size())[group.rank()].to(device);
    optimizer.zero_grad();
    model(share).square().mean().backward();
    RANK_CHECK_FALSE(net->weight.grad().is_view());
    optimizer.step();
  }
  return net->weight.detach().cpu();
}

void expect_collectives_work(const GroupHandle& group) {
  const auto rank = static_cast<float>(group.rank());
  const auto size = static_cast<float>(group.size());
  auto value = torch::full({1000}, rank + 1, group.device());
  all_reduce(value, group);
  RANK_CHECK(value[999].item<float>() == size * (size + 1) / 2);
  value.fill_(rank);
  broadcast(value, group.size() - 1, group);
  RANK_CHECK(value[0].item<float>() == size - 1);
  value.fill_(rank);
  const auto all = all_gather(value, group);
  for (int64_t r = 0; r < group.size(); ++r) RANK_CHECK(all[r][5].item<float>() == static_cast<float>(r));
  barrier(group);
  RANK_CHECK(broadcast_string("text", 0, group) == "text");
  RANK_CHECK(all_gather_strings(std::to_string(group.rank()), group).back() == std::to_string(group.size() - 1));
}

TEST_CASE("OneRank: default backend uses the GPU") {
  const auto group = init_process_group();
  CHECK(torch::cuda::is_available());
  CHECK(group.device().is_cuda());
  expect_collectives_work(group);
}

TEST_CASE("OneRank: NCCL trains as the CPU does") {
  auto group = init_process_group({.backend = "cpu:gloo,cuda:nccl"});
  CHECK(group.device().is_cuda());
  expect_collectives_work(group);
  const auto on_gpu = train(group, group.device());
  const auto on_cpu = train(group, c10::Device(c10::kCPU));
  CHECK(torch::allclose(on_gpu, on_cpu, 1e-4, 1e-6));
  group.close();
}

TEST_CASE("OneRank: every option and hook trains on NCCL as plain ones on the CPU") {
  auto group = init_process_group({.backend = "cpu:gloo,cuda:nccl"});
  const auto on_cpu = train(group, c10::Device(c10::kCPU));
  const PowerSgdOptions full_rank{.matrix_approximation_rank = 4, .start_iteration = 2, .min_compression_rate = 0.1};
  const std::vector<DdpOptions> all{
      {.bucket_cap_bytes = kAutoBucketCap},
      {.find_unused_parameters = true},
      {.static_graph = true},
      {.gradient_as_bucket_view = true, .check_gradients = true},
      {.delayed = {.names = {"bias"}, .trigger = "weight"}},
      {.comm_hook = hooks::all_reduce(group)},
      {.comm_hook = hooks::fp16_compress(group)},
      {.comm_hook = hooks::bf16_compress(group)},
      {.comm_hook = hooks::fp16_compress_wrapper(hooks::all_reduce(group))},
      {.comm_hook = hooks::power_sgd(make_power_sgd_state(group, full_rank))},
  };
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("options " << i);
    CHECK(torch::allclose(train(group, group.device(), all[i]), on_cpu, 2e-2, 1e-3));
  }
  group.close();
}

TEST_CASE("OneRank: after the first ones a step makes the host wait for nothing") {
  auto group = init_process_group({.backend = "cpu:gloo,cuda:nccl"});
  const std::vector<DdpOptions> all{
      {},
      {.static_graph = true},
      {.gradient_as_bucket_view = false},
      {.comm_hook = hooks::fp16_compress(group)},
      {.comm_hook = hooks::all_reduce(group)},
  };
  for (size_t i = 0; i < all.size(); ++i) {
    INFO("options " << i);
    torch::nn::Linear net(64, 64);
    net->to(group.device());
    DistributedDataParallel<torch::nn::Linear> model(net, group, all[i]);
    optim::SGD optimizer(net->parameters(), optim::SGDOptions(0.1).momentum(0.9));
    GradScaler scaler;
    const auto x = at::ones({8, 64}, at::TensorOptions(group.device()));
    const auto step = [&] {
      optimizer.zero_grad();
      at::Tensor loss;
      {
        const Autocast autocast(group.device());
        loss = model(x).square().mean();
      }
      scaler.scale(loss).backward();
      scaler.step(optimizer);
      scaler.update();
    };
    for (int warm_up = 0; warm_up < 3; ++warm_up) step();
    const test::NoGpuWaits none;
    for (int rest = 0; rest < 5; ++rest) step();
  }
  group.close();
}

TEST_CASE("TwoRanks: gloo shares a GPU and trains as the CPU does") {
  const auto group = init_process_group({.backend = "gloo", .device = c10::Device(c10::kCUDA)});
  REQUIRE(group.size() == 2);
  CHECK(group.device().is_cuda());
  expect_collectives_work(group);
  const auto on_gpu = train(group, group.device());
  const auto on_cpu = train(group, c10::Device(c10::kCPU));
  CHECK(torch::allclose(on_gpu, on_cpu, 1e-4, 1e-6));
}

TEST_CASE("SharedGpu: NCCL refuses two ranks on one GPU") {
  if (torch::cuda::device_count() != 1) SKIP("needs exactly one visible GPU");
  std::string message;
  try {
    const auto group = init_process_group({.backend = "nccl", .timeout = std::chrono::seconds(20)});
  } catch (const std::exception& error) {
    message = error.what();
  }
  CHECK_THAT(message, ContainsSubstring("NCCL needs one GPU per rank"));
}

}  // namespace
}  // namespace ddp::ddp_on_gpu
