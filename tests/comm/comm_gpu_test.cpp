// On a machine with a GPU: every operation on CUDA tensors, with NCCL on one rank and with gloo on two that share the
// GPU. Ranks are threads.
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/spawn.h>

#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/tensors.h"

namespace ddp::comm_on_gpu {
namespace {

const c10::Device kGpu(c10::kCUDA, 0);

at::Tensor filled(float value, int64_t rows = 4) {
  return at::full({rows, 3}, value, at::TensorOptions(kGpu));
}

void expect_filled(const at::Tensor& tensor, float value, const char* what) {
  RANK_INFO(what);
  RANK_REQUIRE(tensor.is_cuda());
  RANK_CHECK_THAT(tensor, test::EqualsTensor(at::full_like(tensor, value)));
}

void expect_every_operation_works(const GroupHandle& group) {
  RANK_REQUIRE(group.device().is_cuda());
  const int n = group.size();
  const auto size = static_cast<float>(n);
  const auto rank = static_cast<float>(group.rank());
  const float sum = size * (size + 1) / 2;
  const at::Tensor mine = filled(rank + 1, 4 * n);

  at::Tensor value = mine.clone();
  all_reduce(value, group);
  expect_filled(value, sum, "all_reduce");
  value = mine.clone();
  auto pending = all_reduce_async(value, group, ReduceOp::kAvg);
  pending.wait();
  expect_filled(value, sum / size, "all_reduce_async");
  const at::Tensor a = mine.clone();
  const at::Tensor b = at::full({2}, rank + 1, at::TensorOptions(kGpu).dtype(at::kDouble));
  all_reduce_coalesced({a, b}, group);
  expect_filled(a, sum, "all_reduce_coalesced");
  expect_filled(b, sum, "all_reduce_coalesced");
  value = mine.clone();
  reduce(value, 0, group, ReduceOp::kMax);
  if (group.rank() == 0) expect_filled(value, size, "reduce");
  expect_filled(reduce_scatter(mine, group), sum, "reduce_scatter");
  value = mine.clone();
  broadcast(value, n - 1, group);
  expect_filled(value, size, "broadcast");
  for (int r = 0; r < n; ++r) {
    expect_filled(all_gather(mine, group)[r], static_cast<float>(r + 1), "all_gather");
    expect_filled(all_gather_uneven(filled(rank, group.rank() + 1), group)[static_cast<size_t>(r)],
                  static_cast<float>(r), "all_gather_uneven");
  }
  const at::Tensor gathered = gather(mine, 0, group);
  std::vector<at::Tensor> parts;
  for (int r = 0; r < n && group.rank() == 0; ++r) {
    expect_filled(gathered[r], static_cast<float>(r + 1), "gather");
    parts.push_back(gathered[r].contiguous());
  }
  value = at::zeros_like(mine);
  scatter(value, parts, 0, group);
  expect_filled(value, rank + 1, "scatter");
  const at::Tensor exchanged = all_to_all(mine, group);
  for (int r = 0; r < n; ++r) expect_filled(exchanged.narrow(0, 4 * r, 4), static_cast<float>(r + 1), "all_to_all");
  RANK_CHECK(all_gather_strings(std::to_string(group.rank()), group).back() == std::to_string(n - 1));
  expect_filled(reduce_tensor(mine, group), sum / size, "reduce_tensor");
  const auto all = new_group(group, [&] {
    std::vector<int> ranks;
    for (int r = 0; r < n; ++r) ranks.push_back(r);
    return ranks;
  }());
  value = mine.clone();
  all_reduce(value, *all);
  expect_filled(value, sum, "all_reduce in a sub-group");
  barrier(group);
}

TEST_CASE("OneRank: NCCL has every operation") {
  spawn(1, expect_every_operation_works, {.backend = "cpu:gloo,cuda:nccl", .devices = {kGpu}});
}

TEST_CASE("TwoRanksOnOneGpu: gloo has every operation") {
  spawn(2, expect_every_operation_works, {.backend = "gloo", .devices = {kGpu, kGpu}});
}

}  // namespace
}  // namespace ddp::comm_on_gpu
