// The short way of small sums between two ranks, against the ring.
#include "comm/backends/pair_exchange.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/backends/all_reduce_backend.h"
#include "comm/group/planned_all_reduce.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"
#include "tests/support/tensors.h"

namespace ddp::detail {
namespace {

using test::run_ranks;

constexpr at::ScalarType kDtypes[] = {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16};
constexpr int64_t kMaxBytes = int64_t{64} << 10;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.nbytes() == b.nbytes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

bool takes(const at::Tensor& tensor, const GroupHandle& group) {
  return plan_all_reduce(group.state(), tensor, {.waiter = AllReduceWaiter::kBackward}) == AllReducePlan::kInWait;
}

WorkPtr start_exchange(const at::Tensor& tensor, const GroupHandle& group) {
  return group.state().all_reduce_backend()->all_reduce_in_wait(tensor);
}

void expect_bits_of_the_ring(const at::Tensor& mine, const GroupHandle& group) {
  const at::Tensor direct = mine.clone();
  const at::Tensor ring = mine.clone();
  start_exchange(direct, group)->wait();
  all_reduce(ring, group);
  RANK_CHECK(same_bits(direct, ring));
}

TEST_CASE("PairExchange: takes small contiguous floating point tensors of the CPU and no others") {
  run_ranks(2, [](const GroupHandle& group) {
    for (const at::ScalarType dtype : kDtypes) {
      const int64_t most = kMaxBytes / static_cast<int64_t>(c10::elementSize(dtype));
      RANK_CHECK(takes(at::ones({1}, dtype), group));
      RANK_CHECK(takes(at::ones({}, dtype), group));
      RANK_CHECK(takes(at::ones({most}, dtype), group));
      RANK_CHECK_FALSE(takes(at::ones({most + 1}, dtype), group));
      RANK_CHECK_FALSE(takes(at::ones({0}, dtype), group));
      RANK_CHECK_FALSE(takes(at::ones({2, 3}, dtype).t(), group));
      RANK_CHECK_FALSE(takes(at::ones({1}, dtype).expand({3}), group));
      RANK_CHECK_FALSE(takes(at::ones({4, 4}, dtype).to_sparse(), group));
      RANK_CHECK_FALSE(takes(at::empty({4}, at::device(at::kMeta).dtype(dtype)), group));
    }
    for (const at::ScalarType dtype : {at::kLong, at::kInt, at::kByte, at::kBool, at::kComplexFloat}) {
      RANK_CHECK_FALSE(takes(at::ones({4}, dtype), group));
    }
  });
}

TEST_CASE("PairExchange: its sums have the bits of the ring's, whatever the dtype, size and values") {
  run_ranks(2, [](const GroupHandle& group) {
    RANK_REQUIRE(test::exchanges_directly(group));
    auto generator = at::detail::createCPUGenerator(static_cast<uint64_t>(group.rank()) + 1);
    for (const at::ScalarType dtype : kDtypes) {
      const int64_t most = kMaxBytes / static_cast<int64_t>(c10::elementSize(dtype));
      for (const int64_t size : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{1001}, most}) {
        const at::Tensor values = at::randn({size}, generator).mul(1000).to(dtype);
        expect_bits_of_the_ring(values, group);
      }
      constexpr float kInfinity = std::numeric_limits<float>::infinity();
      const float sign = group.rank() == 0 ? 1.F : -1.F;
      expect_bits_of_the_ring(at::tensor({kInfinity, 0.F, -0.F, 1e-45F, 3e38F, 1e-8F}).mul(sign).to(dtype), group);
      expect_bits_of_the_ring(at::tensor({kInfinity, -0.F, 65504.F, 1.F + group.rank() * 1e-3F}).to(dtype), group);
    }
  });
}

TEST_CASE("PairExchange: sums under way at once end in any order") {
  run_ranks(2, [](const GroupHandle& group) {
    std::vector<at::Tensor> tensors;
    std::vector<WorkPtr> sums;
    for (int i = 0; i < 10; ++i) {
      tensors.push_back(at::full({i + 1}, static_cast<float>(i + 1) * (group.rank() + 1)));
      sums.push_back(start_exchange(tensors.back(), group));
    }
    const std::vector<size_t> orders[] = {{9, 0, 5, 1, 8, 2, 7, 3, 6, 4}, {4, 3, 2, 1, 0, 5, 9, 8, 7, 6}};
    for (const size_t i : orders[group.rank()]) {
      sums[i]->wait();
      RANK_CHECK_THAT(tensors[i], test::EqualsTensor(at::full_like(tensors[i], 3.F * static_cast<float>(i + 1))));
    }
  });
}

TEST_CASE("PairExchange: sums that nobody finishes disturb neither later ones nor other messages") {
  run_ranks(2, [](const GroupHandle& group) {
    for (int i = 0; i < 5; ++i) start_exchange(at::full({8}, 100.F + static_cast<float>(i)), group);
    const at::Tensor tensor = at::ones({8});
    const WorkPtr sum = start_exchange(tensor, group);
    // A user's messages between the same two have tags of their own.
    at::Tensor received = at::zeros({8});
    batch_send_recv({send_to(1 - group.rank(), at::full({8}, 7.F)), receive_from(1 - group.rank(), received)}, group);
    RANK_CHECK_THAT(received, test::EqualsTensor(at::full({8}, 7.F)));
    sum->wait();
    RANK_CHECK_THAT(tensor, test::EqualsTensor(at::full({8}, 2.F)));
    barrier(group);
  });
}

TEST_CASE("PairExchange: leaves take sums without being recorded") {
  run_ranks(2, [](const GroupHandle& group) {
    const at::Tensor leaf = at::ones({3}).requires_grad_();
    start_exchange(leaf, group)->wait();
    RANK_CHECK(leaf.is_leaf());
    RANK_CHECK_THAT(leaf.detach(), test::EqualsTensor(at::full({3}, 2.F)));
  });
}

TEST_CASE("PairExchange: is there for two ranks on gloo alone, in sub groups as well") {
  for (const int size : {1, 2, 3}) {
    run_ranks(size, [&](const GroupHandle& group) { RANK_CHECK(test::exchanges_directly(group) == (size == 2)); });
  }
  run_ranks(2, [](const GroupHandle& group) { RANK_CHECK_FALSE(test::exchanges_directly(group)); },
            {.wire = test::Wire::kLate});
  run_ranks(3, [](const GroupHandle& group) {
    const auto pair = new_group(group, {0, 2});
    const auto alone = new_group(group, {1});
    RANK_CHECK_FALSE(test::exchanges_directly(group));
    if (alone) RANK_CHECK_FALSE(test::exchanges_directly(*alone));
    if (!pair) return;
    RANK_CHECK(test::exchanges_directly(*pair));
    const at::Tensor tensor = at::full({2}, static_cast<float>(group.rank() + 1));
    start_exchange(tensor, *pair)->wait();
    RANK_CHECK_THAT(tensor, test::EqualsTensor(at::full({2}, 4.F)));
  });
}

}  // namespace
}  // namespace ddp::detail
