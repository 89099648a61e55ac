// On a machine with a GPU, which two ranks share over gloo (started by ddprun): the same results as on the CPU.
#include <ATen/autocast_mode.h>
#include <torch/cuda.h>
#include <torch/nn/modules/batchnorm.h>

#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/syncbn/conversion.h>
#include <ddprun/syncbn/sync_batch_norm.h>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::syncbn_on_gpu {
namespace {

using torch::Tensor;

class OnGpu {
 protected:
  static ProcessGroup make_group() {
    return init_process_group({.backend = "gloo", .device = c10::Device(c10::kCUDA)});
  }
};

struct Format {
  std::vector<int64_t> spatial;
  at::MemoryFormat format;
};

Tensor numbers(torch::IntArrayRef shape, uint64_t seed) {
  return torch::randn(shape, at::detail::createCPUGenerator(seed), torch::kDouble);
}

// Largest difference relative to the largest expected value.
double error(const Tensor& actual, const Tensor& expected) {
  const Tensor difference = actual.detach().to(c10::kCPU, torch::kDouble) - expected;
  return difference.numel() == 0 ? 0 : (difference.abs().max() / expected.abs().max()).item<double>();
}

// Trains one layer on this rank's part of a batch and compares it with LibTorch's on the whole batch, on the CPU in
// double.
void expect_equals_whole_batch(const GroupHandle& group, const std::vector<int64_t>& batch, const Format& format,
                               torch::ScalarType type, double tolerance) {
  int64_t total = 0;
  int64_t start = 0;
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) start = total;
    total += batch[static_cast<size_t>(rank)];
  }
  const int64_t own = batch[static_cast<size_t>(group.rank())];
  std::vector<int64_t> shape{total, 6};
  shape.insert(shape.end(), format.spatial.begin(), format.spatial.end());

  SyncBatchNorm norm(6, group);
  norm->to(group.device());
  if (type == torch::kDouble) norm->to(torch::kDouble);
  Tensor mean = torch::zeros({6}, torch::kDouble);
  Tensor var = torch::ones({6}, torch::kDouble);
  for (uint64_t step = 0; step < 3; ++step) {
    const Tensor all = (numbers(shape, step) * 2 + 1).to(type);
    const Tensor dy = numbers(shape, 10 + step).to(type);
    Tensor whole = all.to(torch::kDouble, /*non_blocking=*/false, /*copy=*/true).requires_grad_();
    const Tensor expected = torch::batch_norm(whole, {}, {}, mean, var, true, 0.1, 1e-5, false);
    expected.backward(dy.to(torch::kDouble));

    Tensor x = all.narrow(0, start, own).to(group.device()).contiguous(format.format).detach().requires_grad_();
    const Tensor y = norm(x);
    RANK_CHECK(y.scalar_type() == type);
    RANK_CHECK((x.numel() == 0 || y.is_contiguous(format.format)));
    y.backward(dy.narrow(0, start, own).to(group.device()));
    RANK_CHECK(error(y, expected.narrow(0, start, own)) < tolerance);
    RANK_CHECK(error(x.grad(), whole.grad().narrow(0, start, own)) < tolerance);
  }
  const double statistics = std::min(tolerance, 1e-5);
  RANK_CHECK(error(norm->running_mean, mean) < statistics);
  RANK_CHECK(error(norm->running_var, var) < statistics);
  const Tensor running = all_gather(norm->running_var, group);
  RANK_CHECK(torch::equal(running[0], running[group.size() - 1]));
}

TEST_CASE_METHOD(OnGpu, "OnGpu: equals batch norm of the whole batch") {
  auto group = make_group();
  REQUIRE(group.size() == 2);
  const std::vector<Format> formats{{{}, at::MemoryFormat::Contiguous},
                                    {{9}, at::MemoryFormat::Contiguous},
                                    {{9, 7}, at::MemoryFormat::Contiguous},
                                    {{9, 7}, at::MemoryFormat::ChannelsLast},
                                    {{3, 9, 7}, at::MemoryFormat::Contiguous}};
  for (const Format& format : formats) {
    for (const std::vector<int64_t>& batch : {std::vector<int64_t>{4, 4}, {0, 5}, {5, 0}, {2, 7}}) {
      expect_equals_whole_batch(group, batch, format, torch::kDouble, 1e-12);
      expect_equals_whole_batch(group, batch, format, torch::kFloat, 1e-5);
      expect_equals_whole_batch(group, batch, format, torch::kHalf, 2e-3);
      expect_equals_whole_batch(group, batch, format, torch::kBFloat16, 2e-2);
    }
  }
}

TEST_CASE_METHOD(OnGpu, "OnGpu: converted layers are intercepted there too") {
  auto group = make_group();
  torch::nn::BatchNorm2d norm(4);
  norm->to(group.device());
  CHECK(convert_sync_batchnorm(norm, group) == 1U);
  const Tensor all = numbers({6, 4, 5, 5}, 1).to(torch::kFloat);
  const Tensor expected = torch::batch_norm(all, {}, {}, {}, {}, true, 0.1, 1e-5, false);
  const Tensor x = all.narrow(0, 3 * group.rank(), 3).to(group.device()).requires_grad_();
  const Tensor y = norm(x);
  CHECK(error(y, expected.narrow(0, 3 * group.rank(), 3).to(torch::kDouble)) < 1e-5);
  y.sum().backward();
}

TEST_CASE_METHOD(OnGpu, "OnGpu: autocast gives half precision with single precision statistics") {
  auto group = make_group();
  SyncBatchNorm norm(4, group);
  norm->to(group.device());
  at::autocast::set_autocast_enabled(at::kCUDA, true);
  const Tensor y = norm(torch::randn({3, 4, 5, 5}, at::TensorOptions().device(group.device()).dtype(at::kHalf)));
  at::autocast::set_autocast_enabled(at::kCUDA, false);
  CHECK(y.scalar_type() == torch::kHalf);
  CHECK(norm->running_mean.scalar_type() == torch::kFloat);
}

TEST_CASE_METHOD(OnGpu, "OnGpu: ranks that disagree on channels are found") {
  auto group = make_group();
  const int64_t channels = group.rank() == 0 ? 4 : 8;
  SyncBatchNorm norm(channels, group);
  norm->to(group.device());
  CHECK_THROWS_AS(norm(torch::ones({2, channels, 3}, at::TensorOptions().device(group.device()))), std::runtime_error);
}

}  // namespace
}  // namespace ddp::syncbn_on_gpu
