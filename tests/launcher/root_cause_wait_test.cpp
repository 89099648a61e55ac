#include "launcher/processes/root_cause_wait.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

using namespace std::chrono_literals;

const RootCauseWait::Time kStart{100s};

TEST(RootCauseWait, ThereIsNoneWithoutAVictim) {
  const RootCauseWait wait;
  EXPECT_FALSE(wait.has_begun());
  EXPECT_FALSE(wait.goes_on(kStart, true));
}

TEST(RootCauseWait, ALostPeerIsWaitedForUntilItHasTornDown) {
  RootCauseWait wait;
  wait.add_victim(kStart, false);
  EXPECT_TRUE(wait.goes_on(kStart + 3900ms, false));
  EXPECT_FALSE(wait.goes_on(kStart + 4s, true));
}

TEST(RootCauseWait, VagueWordsHoldTheOthersUpOnlyWhileOneOfThemIsEnding) {
  RootCauseWait wait;
  wait.add_victim(kStart, true);
  EXPECT_TRUE(wait.goes_on(kStart + 400ms, false));
  EXPECT_FALSE(wait.goes_on(kStart + 500ms, false));
  EXPECT_TRUE(wait.goes_on(kStart + 3900ms, true));
  EXPECT_FALSE(wait.goes_on(kStart + 4s, true));
}

TEST(RootCauseWait, MoreVictimsAreMoreTimeButNotForEver) {
  RootCauseWait wait;
  for (auto time = kStart; time < kStart + 4s; time += 300ms) {
    wait.add_victim(time, true);
    EXPECT_TRUE(wait.goes_on(time + 50ms, false));
  }
  EXPECT_FALSE(wait.goes_on(kStart + 4s, false));
}

TEST(RootCauseWait, OneThatIsSureDecides) {
  RootCauseWait wait;
  wait.add_victim(kStart, true);
  wait.add_victim(kStart + 100ms, false);
  EXPECT_TRUE(wait.goes_on(kStart + 3s, false));
}

}  // namespace
}  // namespace launcher
