#include "launcher/local/output/reader_timeout.h"

#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

const ReaderTimeout::Time kEnd{100s};

TEST_CASE("ReaderPatience: the output of a job that ended well is never dropped") {
  CHECK_FALSE(ReaderTimeout{.begin = kEnd, .grace = 30s, .ended_well = true}.deadline(kEnd));
}

TEST_CASE("ReaderPatience: a reader that takes something is waited for after a failure") {
  const ReaderTimeout timeout{.begin = kEnd, .grace = 30s};
  CHECK(timeout.deadline(kEnd - 50s) == kEnd + 30s);
  CHECK(timeout.deadline(kEnd + 20s) == kEnd + 50s);
}

TEST_CASE("ReaderPatience: a job that is stopped ends within the grace time, but not within a second") {
  const ReaderTimeout timeout{.begin = kEnd, .grace = 30s, .kill_time = kEnd + 10s, .ended_well = true};
  CHECK(timeout.deadline(kEnd + 9s) == kEnd + 10s);
  CHECK(ReaderTimeout{.begin = kEnd, .kill_time = kEnd - 10s}.deadline(kEnd) == kEnd + 1s);
}

TEST_CASE("ReaderPatience: the time of the job outranks the rest") {
  const ReaderTimeout timeout{
      .begin = kEnd, .grace = 5s, .timed_out_at = kEnd, .kill_time = kEnd + 10s, .ended_well = true};
  CHECK(timeout.deadline(kEnd) == kEnd + 5s);
}

TEST_CASE("ReaderPatience: who was given up once is not waited for again") {
  const ReaderTimeout timeout{.begin = kEnd, .grace = 30s, .ended_well = true, .gave_up_before = true};
  CHECK(timeout.deadline(kEnd + 20s) == kEnd + 1s);
}

}  // namespace
}  // namespace launcher
