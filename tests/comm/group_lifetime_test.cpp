// From the first connection to the last owner's end; groups of one process.
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>

#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>

#include "tests/comm/expect_equal.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/placement.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::MessageMatches;
using test::error_of;
using test::expect_equal;
using test::here;
using test::run_ranks;

TEST_CASE("ClosedGroup: waits for ranks that are still connecting") {
  for (int round = 0; round < 10; ++round) run_ranks(4, [](const GroupHandle&) {});
}

TEST_CASE("ClosedGroup: refuses every operation and says so") {
  run_ranks(2, [](const GroupHandle& group) {
    // run_ranks owns the group; an owner of our own is made from its handle's state.
    barrier(group);
    ProcessGroup owner(std::shared_ptr<detail::GroupState>(&group.state(), [](detail::GroupState*) {}));
    const GroupHandle handle = owner;
    RANK_CHECK(handle.is_open());
    owner.close();
    owner.close();
    RANK_CHECK_FALSE(handle.is_open());
    {
      RANK_INFO("what needs no connection still answers");
      RANK_CHECK(handle.size() == 2);
    }
    const at::Tensor tensor = here(at::ones({2}));
    const auto closed =
        test::ContainsAll({"rank " + std::to_string(group.rank()) + " of 2: ", "on a process group that was closed"});
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all_reduce(tensor, handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { reduce(tensor, 0, handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { broadcast(tensor, 0, handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { broadcast_coalesced({tensor}, 0, handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all_gather(tensor, handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { barrier(handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { broadcast_string("", 0, handle); }), closed);
    RANK_CHECK_THAT(error_of<std::runtime_error>([&] { all_gather_strings("", handle); }), closed);
    owner.abort();
  });
}

int open_sockets() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the iterator's own descriptor
    count += std::filesystem::read_symlink(entry, gone).string().starts_with("socket:") ? 1 : 0;
  }
  return count;
}

ProcessGroup alone() {
  return init_process_group({.rank_info = RankInfo{}});
}

TEST_CASE("SingleProcess: needs no network") {
  const int before = open_sockets();
  const ProcessGroup group = alone();
  CHECK(group.rank() == 0);
  CHECK(group.size() == 1);
  CHECK(group.backend() == "local");
  at::Tensor tensor = here(at::arange(5, at::kFloat));
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax}) {
    all_reduce(tensor, group, op);
    reduce(tensor, 0, group, op);
  }
  broadcast(tensor, 0, group);
  broadcast_coalesced({tensor}, 0, group);
  expect_equal(tensor, here(at::arange(5, at::kFloat)));
  expect_equal(all_gather(tensor, group), tensor.unsqueeze(0));
  expect_equal(all_gather(tensor[0], group), here(at::zeros({1})));
  barrier(group);
  CHECK(broadcast_string("text", 0, group) == "text");
  CHECK(all_gather_strings("text", group) == std::vector<std::string>{"text"});
  CHECK(open_sockets() == before);
}

TEST_CASE("SingleProcess: may name gloo") {
  const ProcessGroup group = init_process_group({.backend = "gloo", .rank_info = RankInfo{}});
  CHECK(group.backend() == "gloo");
  at::Tensor tensor = here(at::ones({2}));
  all_reduce(tensor, group);
  expect_equal(tensor, here(at::ones({2})));
}

TEST_CASE("SingleProcess: backend local is refused for more than one") {
  CHECK_THROWS_MATCHES(init_process_group({.backend = "local", .rank_info = RankInfo{.rank = 0, .world_size = 2}}),
                       std::invalid_argument,
                       MessageMatches(ContainsSubstring("rank 0 of 2: backend 'local' is for a single process")));
}

TEST_CASE("SingleProcess: says why there is no CUDA") {
  CHECK_THROWS_MATCHES(
      init_process_group({.backend = "nccl", .device = c10::Device(c10::kCPU), .rank_info = RankInfo{}}),
      std::invalid_argument, MessageMatches(ContainsSubstring("backend 'nccl' needs a CUDA device, not 'cpu'")));
}

TEST_CASE("OwnerOfAGroup: moves with its group and closes it once") {
  ProcessGroup first = alone();
  const GroupHandle handle = first;
  ProcessGroup second = std::move(first);
  CHECK(second.is_open());
  {
    const ProcessGroup third = std::move(second);
    CHECK(third.is_open());
  }
  UNSCOPED_INFO("the last owner closed it");
  CHECK_FALSE(handle.is_open());

  ProcessGroup replaced = alone();
  const GroupHandle old = replaced;
  replaced = alone();
  UNSCOPED_INFO("assignment closes what was held before");
  CHECK_FALSE(old.is_open());
  CHECK(replaced.is_open());
}

TEST_CASE("OwnerOfAGroup: a moved from owner closes nothing") {
  ProcessGroup keeper = alone();
  {
    ProcessGroup temporary = alone();
    keeper = std::move(temporary);
  }
  CHECK(keeper.is_open());
}

TEST_CASE("OwnerOfAGroup: aborts when an exception unwinds it") {
  std::optional<GroupHandle> handle;
  CHECK_THROWS_AS(([&] {
                    const ProcessGroup group = alone();
                    handle = group.handle();
                    throw std::runtime_error("training failed");
                  })(),
                  std::runtime_error);
  CHECK_FALSE(handle->is_open());
}

}  // namespace
}  // namespace ddp
