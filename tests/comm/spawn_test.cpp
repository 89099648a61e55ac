// What spawn() and init_process_group() refuse, what leaves them, and what a process is prepared for.
#include "ddprun/comm/spawn.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <ddprun/comm/collectives.h>
#include <ddprun/comm/process_group.h>

#include "comm/group/connect_group.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using test::error_of;

const c10::Device kMeta(c10::kMeta);
const c10::Device kCpu(c10::kCPU);

float sum_in_group(const GroupHandle& group) {
  const at::Tensor sum = at::ones({1});
  all_reduce(sum, group);
  return sum.item<float>();
}

TEST_CASE("Spawn: refuses what it could not run before any rank begins") {
  const auto nothing = [](const GroupHandle&) { FAIL_CHECK("a rank ran"); };
  const auto refusal = [&](int size, const SpawnOptions& options) {
    return error_of<std::invalid_argument>([&] { spawn(size, nothing, options); });
  };
  CHECK_THAT(refusal(-1, {}), ContainsSubstring("at least 1 rank, got -1"));
  CHECK_THAT(refusal(2, {.timeout = 0ms}), ContainsSubstring("spawn: expected a timeout above 0, got 0 ms"));
  CHECK_THAT(refusal(2, {.timeout = -1ms}), ContainsSubstring("spawn: expected a timeout above 0, got -1 ms"));
  CHECK_THAT(refusal(2, {.devices = {kCpu, kMeta}}),
             ContainsSubstring("expected a device of kind 'cpu' or 'cuda', got 'meta'"));
  CHECK_THAT(refusal(1, {.devices = {kCpu, kCpu}}), ContainsSubstring("one device per rank, 1, got 2"));
  CHECK_THAT(refusal(2, {.backend = "gloo,nccl"}), !ContainsSubstring("no error"));
  CHECK_THAT(error_of<std::invalid_argument>([] { spawn(2, nullptr); }), ContainsSubstring("got an empty one"));
}

TEST_CASE("Spawn: what a rank throws comes nested, whatever it is") {
  struct Unusual {};
  const auto nested_in = [](const SpawnError& error) {
    try {
      std::rethrow_if_nested(error);
    } catch (const Unusual&) {
      return "unusual";
    } catch (const std::bad_alloc&) {
      return "bad_alloc";
    } catch (...) {
      return "another";
    }
    return "none";
  };
  try {
    spawn(2, [](const GroupHandle& group) {
      if (group.rank() == 1) throw Unusual{};
    });
    FAIL_CHECK("no error");
  } catch (const SpawnError& error) {
    CHECK(error.rank() == 1);
    CHECK(std::string(error.what()) == "rank 1 of 2: threw something that is not a std::exception");
    CHECK(std::string(nested_in(error)) == "unusual");
  }
  try {
    spawn(1, [](const GroupHandle&) { throw std::bad_alloc(); });
    FAIL_CHECK("no error");
  } catch (const SpawnError& error) {
    CHECK(std::string(nested_in(error)) == "bad_alloc");
    CHECK(error.rank() == 0);
  }
}

TEST_CASE("Spawn: groups that a rank makes may outlive its body's scopes but not the job") {
  std::vector<std::optional<GroupHandle>> kept(3);
  spawn(3, [&](const GroupHandle& group) {
    const auto everybody = new_group(group, {0, 1, 2});
    RANK_CHECK(sum_in_group(*everybody) == 3);
    kept[static_cast<size_t>(group.rank())] = group;
  });
  test::report_rank_checks();
  for (const auto& handle : kept) {
    REQUIRE(handle.has_value());
    CHECK_FALSE(handle->is_open());
    CHECK_THAT(error_of<std::runtime_error>([&] { sum_in_group(*handle); }), ContainsSubstring("closed"));
  }
}

TEST_CASE("Spawn: jobs of several callers run beside each other") {
  std::atomic<int> sums{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      spawn(1 + caller, [&](const GroupHandle& group) {
        for (int i = 0; i < 20; ++i) RANK_CHECK(sum_in_group(group) == static_cast<float>(1 + caller));
        ++sums;
      });
    });
  }
  for (std::thread& caller : callers) caller.join();
  test::report_rank_checks();
  CHECK(sums == 6);
}

TEST_CASE("ProcessGroup: a place in the job that is none is refused before anything is connected") {
  const std::vector<std::pair<RankInfo, std::string>> cases{
      {{.rank = 2, .world_size = 2}, "rank=2, world_size=2: expected 0 <= rank < world_size"},
      {{.rank = -1, .world_size = 2}, "rank=-1, world_size=2"},
      {{.rank = 0, .world_size = 0}, "rank=0, world_size=0"},
      {{.rank = 0, .world_size = -4}, "rank=0, world_size=-4"},
      {{.local_rank = 1}, "local_rank=1, local_world_size=1: expected 0 <= local_rank < local_world_size"},
      {{.local_rank = -1, .local_world_size = 2}, "local_rank=-1"},
      {{.local_world_size = 0}, "local_world_size=0"},
      {{.rank = 1, .world_size = 2, .master_port = 1}, "needs master_addr and master_port, got '' and 1"},
      {{.rank = 1, .world_size = 2, .master_addr = "localhost"}, "got 'localhost' and 0"}};
  for (const auto& [place, why] : cases) {
    const RankInfo& info = place;
    CHECK_THAT(error_of<std::invalid_argument>([&] { init_process_group({.rank_info = info}); }),
               ContainsSubstring("init_process_group: rank_info: ") && ContainsSubstring(why));
  }
}

TEST_CASE("ProcessGroup: settings that no rank can have are refused with the rank") {
  const auto refusal = [](const ProcessGroupOptions& options) {
    return error_of<std::invalid_argument>([&] { init_process_group(options); });
  };
  CHECK_THAT(refusal({.device = kMeta, .rank_info = RankInfo{}}),
             ContainsSubstring("rank 0 of 1: expected a device of kind 'cpu' or 'cuda', got 'meta'"));
  for (const auto timeout : {0ms, -1ms, std::chrono::milliseconds::min()}) {
    CHECK_THAT(refusal({.timeout = timeout, .rank_info = RankInfo{}}),
               ContainsSubstring("rank 0 of 1: init_process_group: expected a timeout above 0, got " +
                                 std::to_string(timeout.count()) + " ms"));
  }
  ProcessGroup group = init_process_group({.timeout = 1ms, .rank_info = RankInfo{}});
  CHECK(sum_in_group(group) == 1);
}

// A signal handler of this test's while it lives.
class SigpipeHandler {
 public:
  explicit SigpipeHandler(void (*handler)(int)) : before_(std::signal(SIGPIPE, handler)) {}
  ~SigpipeHandler() { std::signal(SIGPIPE, before_); }
  SigpipeHandler(const SigpipeHandler&) = delete;
  SigpipeHandler& operator=(const SigpipeHandler&) = delete;

  static auto current() {
    struct sigaction action {};
    sigaction(SIGPIPE, nullptr, &action);
    return action.sa_handler;
  }

 private:
  void (*before_)(int);
};

TEST_CASE("ConnectGroup: a broken connection ends no process, and a program's own way with it is kept") {
  {
    const SigpipeHandler usual(SIG_DFL);
    detail::prepare_process();
    CHECK(SigpipeHandler::current() == SIG_IGN);
    detail::prepare_process();
    CHECK(SigpipeHandler::current() == SIG_IGN);
  }
  void (*const own)(int) = [](int) {};
  const SigpipeHandler programs(own);
  detail::prepare_process();
  CHECK(SigpipeHandler::current() == own);
}

}  // namespace
}  // namespace ddp
