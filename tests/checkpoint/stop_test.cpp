// These run in one process and in this order: a signal that was seen stays seen.
#include <gtest/gtest.h>
#include <signal.h>

#include <atomic>

#include "checkpoint/stop_request.h"
#include "tests/support/ranks.h"

namespace ddp {
namespace {

TEST(StopRequest, ASignalThatWasIgnoredAtTheStartStaysIgnored) {
  ::signal(SIGINT, SIG_IGN);  // as nohup does with HUP
  install_stop_handlers();
  ::raise(SIGINT);
  auto group = init_process_group({.rank_info = RankInfo{}});
  EXPECT_FALSE(stop_requested(group));
}

TEST(StopRequest, ASignalToOneRankIsEveryRanksAnswerAtTheSameStep) {
  std::atomic<int> stopped_at[3] = {-1, -1, -1};
  test::run_ranks(3, [&](const GroupHandle& group) {
    for (int step = 0; step < 20; ++step) {
      if (step == 7 && group.rank() == 1) ::raise(SIGTERM);
      if (!stop_requested(group)) continue;
      stopped_at[group.rank()] = step;
      return;
    }
  });
  // Ranks are threads here and share the flag: another may pass it on one step before rank 1 gets there.
  EXPECT_GE(stopped_at[0].load(), 6);
  EXPECT_LE(stopped_at[0].load(), 7);
  for (const auto& step : stopped_at) EXPECT_EQ(step.load(), stopped_at[0].load());
}

TEST(StopRequest, ASingleProcessAnswersWithoutANetwork) {
  auto group = init_process_group({.rank_info = RankInfo{}});
  EXPECT_TRUE(stop_requested(group)) << "the signal of the test before";
}

}  // namespace
}  // namespace ddp
