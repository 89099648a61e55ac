#include "launcher/local/output/reader_patience.h"

#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

const ReaderPatience::Time kEnd{100s};

TEST_CASE("ReaderPatience: the output of a job that ended well is never dropped") {
  CHECK_FALSE(ReaderPatience{.begin = kEnd, .grace = 30s, .ended_well = true}.deadline(kEnd));
}

TEST_CASE("ReaderPatience: a reader that takes something is waited for after a failure") {
  const ReaderPatience patience{.begin = kEnd, .grace = 30s};
  CHECK(patience.deadline(kEnd - 50s) == kEnd + 30s);
  CHECK(patience.deadline(kEnd + 20s) == kEnd + 50s);
}

TEST_CASE("ReaderPatience: a job that is stopped ends within the grace time, but not within a second") {
  const ReaderPatience patience{.begin = kEnd, .grace = 30s, .kill_time = kEnd + 10s, .ended_well = true};
  CHECK(patience.deadline(kEnd + 9s) == kEnd + 10s);
  CHECK(ReaderPatience{.begin = kEnd, .kill_time = kEnd - 10s}.deadline(kEnd) == kEnd + 1s);
}

TEST_CASE("ReaderPatience: the time of the job outranks the rest") {
  const ReaderPatience patience{
      .begin = kEnd, .grace = 5s, .timed_out_at = kEnd, .kill_time = kEnd + 10s, .ended_well = true};
  CHECK(patience.deadline(kEnd) == kEnd + 5s);
}

TEST_CASE("ReaderPatience: who was given up once is not waited for again") {
  const ReaderPatience patience{.begin = kEnd, .grace = 30s, .ended_well = true, .gave_up_before = true};
  CHECK(patience.deadline(kEnd + 20s) == kEnd + 1s);
}

}  // namespace
}  // namespace launcher
