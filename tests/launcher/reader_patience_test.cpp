#include "launcher/output/reader_patience.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

using namespace std::chrono_literals;

const ReaderPatience::Time kEnd{100s};

TEST(ReaderPatience, TheOutputOfAJobThatEndedWellIsNeverDropped) {
  EXPECT_FALSE((ReaderPatience{.begin = kEnd, .grace = 30s, .ended_well = true}.deadline(kEnd)));
}

TEST(ReaderPatience, AReaderThatTakesSomethingIsWaitedForAfterAFailure) {
  const ReaderPatience patience{.begin = kEnd, .grace = 30s};
  EXPECT_EQ(patience.deadline(kEnd - 50s), kEnd + 30s);
  EXPECT_EQ(patience.deadline(kEnd + 20s), kEnd + 50s);
}

TEST(ReaderPatience, AJobThatIsStoppedEndsWithinTheGraceTimeButNotWithinASecond) {
  const ReaderPatience patience{.begin = kEnd, .grace = 30s, .kill_time = kEnd + 10s, .ended_well = true};
  EXPECT_EQ(patience.deadline(kEnd + 9s), kEnd + 10s);
  EXPECT_EQ((ReaderPatience{.begin = kEnd, .kill_time = kEnd - 10s}.deadline(kEnd)), kEnd + 1s);
}

TEST(ReaderPatience, TheTimeOfTheJobOutranksTheRest) {
  const ReaderPatience patience{
      .begin = kEnd, .grace = 5s, .timed_out_at = kEnd, .kill_time = kEnd + 10s, .ended_well = true};
  EXPECT_EQ(patience.deadline(kEnd), kEnd + 5s);
}

TEST(ReaderPatience, WhoWasGivenUpOnceIsNotWaitedForAgain) {
  const ReaderPatience patience{.begin = kEnd, .grace = 30s, .ended_well = true, .gave_up_before = true};
  EXPECT_EQ(patience.deadline(kEnd + 20s), kEnd + 1s);
}

}  // namespace
}  // namespace launcher
