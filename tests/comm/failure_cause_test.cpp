// What a rank says of the others after a failure. Ranks are threads; one is said to have gone, the others live.
#include "comm/group/failure_cause.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/group/desync_debugger.h"
#include "comm/group/group_state.h"
#include "comm/group/store_keys.h"
#include "comm/group/verify_across_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"
#include "tests/support/rank_checks.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

using namespace std::chrono_literals;
using Catch::Matchers::ContainsSubstring;
using detail::failure_cause;
using test::run_ranks;

void say_gone(c10d::Store& store, int rank) {
  store.set(keys::exited(rank), std::string(keys::kLeftOnError) + "\n" + detail::to_text(detail::RankReport{}));
}

// Ranks other than 0 stay until it has ended `body`.
void run_at_rank_0(int size, const std::function<void(const GroupHandle&, c10d::Store&)>& body) {
  std::atomic<bool> is_over{false};
  run_ranks(size, [&](const GroupHandle& group) {
    if (group.rank() == 0) {
      body(group, *group.state().store());
      is_over = true;
    }
    while (!is_over) std::this_thread::sleep_for(1ms);
  });
}

TEST_CASE("FailureCause: collectives of one rank that fail at once ask the others once, and all know the answer") {
  run_at_rank_0(3, [](const GroupHandle& group, c10d::Store& store) {
    say_gone(store, 2);
    constexpr size_t kThreads = 8;
    std::vector<std::string> causes(kThreads);
    std::vector<std::thread> threads;
    for (std::string& cause : causes) threads.emplace_back([&] { cause = failure_cause(group.state(), 5); });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& cause : causes) {
      RANK_CHECK_THAT(cause, ContainsSubstring("did not take part in it: rank 2 (it stopped earlier"));
    }
    // The first of them may let the host of the store go, and then nobody could be asked again.
    RANK_CHECK(store.add(keys::investigators(), 0) == 1);
  });
}

TEST_CASE("FailureCause: a comparison names the rank that is gone, not the one that waits for it") {
  run_at_rank_0(3, [](const GroupHandle& group, c10d::Store& store) {
    say_gone(store, 2);
    const std::string error =
        test::error_of<std::runtime_error>([&] { verify_equal_across_ranks("parameters", {"a"}, group, 100ms); });
    RANK_CHECK_THAT(error, ContainsSubstring("rank 0 of 3: parameters cannot be compared; did not take part in it: "
                                             "rank 2 (it stopped earlier because of its own error)") &&
                               !ContainsSubstring("rank 1"));
  });
}

TEST_CASE("FailureCause: a rank that compares is not blamed by one that calls a collective, nor does it blame itself") {
  std::atomic<bool> is_over{false};
  run_ranks(2, [&](const GroupHandle& group) {
    if (group.rank() == 1) {
      const std::string error =
          test::error_of<std::runtime_error>([&] { verify_equal_across_ranks("parameters", {"a"}, group, 600ms); });
      RANK_CHECK_THAT(error,
                      ContainsSubstring("cannot be compared: waited for rank 0, which did not reach the same point"));
      is_over = true;
      return;
    }
    const detail::JobServices& job = group.state().job();
    const auto compares = [&] { return job.desync_debugger->ask(*job.store, "", {1}, 10s).at(1).compares; };
    while (!compares() && !is_over) std::this_thread::sleep_for(1ms);
    RANK_CHECK(failure_cause(group.state(), 0).find("rank 1") == std::string::npos);
    while (!is_over) std::this_thread::sleep_for(1ms);
  });
}

}  // namespace
}  // namespace ddp
