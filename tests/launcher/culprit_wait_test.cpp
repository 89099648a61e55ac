#include "launcher/processes/culprit_wait.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

using namespace std::chrono_literals;

const CulpritWait::Time kStart{100s};

TEST(CulpritWait, ThereIsNoneWithoutAVictim) {
  const CulpritWait wait;
  EXPECT_FALSE(wait.has_begun());
  EXPECT_FALSE(wait.goes_on(kStart, true));
}

TEST(CulpritWait, ALostPeerIsWaitedForUntilItHasTornDown) {
  CulpritWait wait;
  wait.add_victim(kStart, false);
  EXPECT_TRUE(wait.goes_on(kStart + 3900ms, false));
  EXPECT_FALSE(wait.goes_on(kStart + 4s, true));
}

TEST(CulpritWait, VagueWordsHoldTheOthersUpOnlyWhileOneOfThemIsEnding) {
  CulpritWait wait;
  wait.add_victim(kStart, true);
  EXPECT_TRUE(wait.goes_on(kStart + 400ms, false));
  EXPECT_FALSE(wait.goes_on(kStart + 500ms, false));
  EXPECT_TRUE(wait.goes_on(kStart + 3900ms, true));
  EXPECT_FALSE(wait.goes_on(kStart + 4s, true));
}

TEST(CulpritWait, MoreVictimsAreMoreTimeButNotForEver) {
  CulpritWait wait;
  for (auto time = kStart; time < kStart + 4s; time += 300ms) {
    wait.add_victim(time, true);
    EXPECT_TRUE(wait.goes_on(time + 50ms, false));
  }
  EXPECT_FALSE(wait.goes_on(kStart + 4s, false));
}

TEST(CulpritWait, OneThatIsSureDecides) {
  CulpritWait wait;
  wait.add_victim(kStart, true);
  wait.add_victim(kStart + 100ms, false);
  EXPECT_TRUE(wait.goes_on(kStart + 3s, false));
}

}  // namespace
}  // namespace launcher
