// The backend "shm" beside gloo: the same bits, and gloo where memory cannot be shared.
#include "comm/backends/shm_backend.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <sys/resource.h>

#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/backends/c10d_compat.h"
#include "comm/group/group_state.h"
#include "comm/shm/engine.h"
#include "comm/shm/segment.h"
#include "tests/support/captured_output.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::EndsWith;
using Catch::Matchers::MessageMatches;
using test::Wire;

std::string backend_name(const GroupHandle& group) {
  return group.state().group("test")->getBackend(c10::kCPU)->getBackendName();
}

constexpr int kMaxRanks = 5;
constexpr int64_t kMaxNumbers = 900'001;

// Sines of many numbers take longer than their sums.
std::vector<at::Tensor> all_numbers() {
  std::vector<at::Tensor> all;
  for (int rank = 0; rank < kMaxRanks; ++rank) {
    all.push_back(at::arange(kMaxRanks * kMaxNumbers, at::kDouble).mul(0.37).add(rank * 1.618).sin().mul(rank + 1.0));
  }
  return all;
}

at::Tensor numbers_of(int rank, int64_t count, at::ScalarType dtype) {
  static const std::vector<at::Tensor> all = all_numbers();
  return all[static_cast<size_t>(rank)].narrow(0, 0, count).to(dtype, /*non_blocking=*/false, /*copy=*/true);
}

// Rank 0's results of sums of every kind and size.
std::vector<at::Tensor> sums(int ranks, Wire wire) {
  std::vector<at::Tensor> results;
  test::run_ranks(
      ranks,
      [&](const GroupHandle& group) {
        const auto keep = [&](const at::Tensor& tensor) {
          if (group.rank() == 0) results.push_back(tensor);
        };
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kHalf, at::kBFloat16, at::kComplexFloat}) {
          for (const int64_t count :
               {int64_t{1}, int64_t{9}, int64_t{1000}, int64_t{5000}, int64_t{70'001}, kMaxNumbers}) {
            const at::Tensor tensor = numbers_of(group.rank(), count, dtype);
            // LibTorch divides complex numbers in a way of its own.
            const bool is_average = count % 2 == 0 && dtype != at::kComplexFloat;
            all_reduce(tensor, group, is_average ? ReduceOp::kAvg : ReduceOp::kSum);
            keep(tensor);
            const at::Tensor for_root = numbers_of(group.rank(), count, dtype);
            reduce(for_root, 0, group);
            keep(for_root);
            keep(reduce_scatter(numbers_of(group.rank(), count * group.size(), dtype), group));
          }
        }
        const at::Tensor large = numbers_of(group.rank(), 3'000'001, at::kFloat);
        reduce(large, 0, group);
        keep(large);
      },
      {.wire = wire, .timeout = std::chrono::seconds(60)});
  return results;
}

void check_equal_bits(int ranks) {
  const std::vector<at::Tensor> own = sums(ranks, Wire::kShm);
  const std::vector<at::Tensor> gloos = sums(ranks, Wire::kGloo);
  REQUIRE(own.size() == gloos.size());
  for (size_t i = 0; i < own.size(); ++i) {
    INFO(ranks << " ranks, tensor " << i << " of " << own[i].numel() << " " << c10::toString(own[i].scalar_type()));
    CHECK(own[i].equal(gloos[i]));
  }
}

TEST_CASE("ShmBackend: sums of any number of ranks have gloo's bits") {
  for (int ranks = 2; ranks <= kMaxRanks; ++ranks) check_equal_bits(ranks);
}

TEST_CASE("ShmBackend: in the order of ranks a sum does not depend on where in the tensor it is") {
  setenv("DDPRUN_SHM_ORDER", "rank", /*overwrite=*/1);
  test::run_ranks(4,
                  [](const GroupHandle& group) {
                    const at::Tensor whole = numbers_of(group.rank(), 30'000, at::kFloat);
                    const at::Tensor part = whole.narrow(0, 20'000, 77).clone();
                    all_reduce(whole, group);
                    all_reduce(part, group);
                    RANK_CHECK(part.equal(whole.narrow(0, 20'000, 77)));
                  },
                  {.wire = Wire::kShm});
  unsetenv("DDPRUN_SHM_ORDER");
}

TEST_CASE("ShmBackend: an order that there is not is refused before others are waited for") {
  setenv("DDPRUN_SHM_ORDER", "bogus", /*overwrite=*/1);
  const std::string said = "DDPRUN_SHM_ORDER: expected 'ring' or 'rank', got 'bogus'";
  CHECK_THROWS_MATCHES(init_process_group({.backend = "shm", .rank_info = RankInfo{.rank = 0, .world_size = 2}}),
                       std::invalid_argument, MessageMatches(EndsWith(said)));
  unsetenv("DDPRUN_SHM_ORDER");
}

TEST_CASE("ShmBackend: serves the group and its sub groups by shared memory") {
  test::run_ranks(3,
                  [](const GroupHandle& group) {
                    RANK_CHECK(backend_name(group) == "shm");
                    const auto pair = new_group(group, {0, 2});
                    if (!pair) return;
                    RANK_CHECK(backend_name(*pair) == "shm");
                    for (int i = 0; i < 20; ++i) {
                      const at::Tensor tensor = at::full({3}, static_cast<float>(i));
                      all_reduce(tensor, *pair);
                      RANK_CHECK(tensor.equal(at::full({3}, 2.F * static_cast<float>(i))));
                    }
                  },
                  {.wire = Wire::kShm});
}

TEST_CASE("ShmBackend: the future of what was waited for has its value") {
  test::run_ranks(2,
                  [](const GroupHandle& group) {
                    const auto c10d_group = group.state().group("test");
                    for (int i = 0; i < 3000; ++i) {
                      std::vector<at::Tensor> tensors{at::full({1 + i % 9000}, 1.F)};
                      const auto work = c10d_group->allreduce(tensors);
                      if (i % 2 == 0) static_cast<void>(work->getFuture());
                      work->wait();
                      RANK_CHECK(work->getFuture()->completed());
                    }
                  },
                  {.wire = Wire::kShm});
}

TEST_CASE("ShmBackend: tensors with gaps are read and written where they are") {
  test::run_ranks(3,
                  [](const GroupHandle& group) {
                    at::Tensor whole = at::full({6, 4}, 1.F);
                    std::vector<at::Tensor> columns{whole.narrow(1, 1, 2)};
                    group.state().group("test")->allreduce(columns)->wait();
                    at::Tensor expected = at::full({6, 4}, 1.F);
                    expected.narrow(1, 1, 2).fill_(3.F);
                    RANK_CHECK(whole.equal(expected));
                  },
                  {.wire = Wire::kShm});
}

TEST_CASE("ShmBackend: where there is no memory to share all ranks use gloo, and one line says why") {
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &before) == 0);
  rlimit small = before;
  small.rlim_cur = 1 << 16;
  REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
  const test::CapturedStderr errors;
  test::run_ranks(2,
                  [](const GroupHandle& group) {
                    RANK_CHECK(backend_name(group) == "gloo");
                    const at::Tensor tensor = at::full({3}, 1.F);
                    all_reduce(tensor, group);
                    RANK_CHECK(tensor.equal(at::full({3}, 2.F)));
                  },
                  {.wire = Wire::kShm});
  REQUIRE(setrlimit(RLIMIT_FSIZE, &before) == 0);
  CHECK(errors.text() ==
        "ddprun: the ranks share no memory and use gloo: rank 0 of 2: the limit on the size of files, 65536 bytes, is "
        "below the " +
            std::to_string(shm::Segment::most_bytes(2)) + " bytes of the ranks' shared memory\n");
}

TEST_CASE("ShmBackend: a call that cannot be started keeps nothing") {
  const auto engine = shm::Engine::make(shm::Segment::create(1), 0, /*shares_processors=*/false);
  detail::ShmBackend backend(0, 1, engine, std::chrono::seconds(60), shm::Order::kRing);
  backend.shutdown();
  std::vector<at::Tensor> tensors{at::full({3}, 1.F)};
  c10d::AllreduceOptions options;
  options.asyncOp = true;
  CHECK_THROWS(backend.allreduce(tensors, options));
  CHECK_THROWS(backend.send(tensors, 0, 1));
  CHECK(tensors[0].use_count() == 1);
}

}  // namespace
}  // namespace ddp
