#include "launcher/local/processes/supervisor.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

const RootCauseWait::Time kWaitStart{100s};

TEST_CASE("RootCauseWait: there is none without a victim") {
  const RootCauseWait wait;
  CHECK_FALSE(wait.has_begun());
  CHECK_FALSE(wait.continues(kWaitStart, true));
}

TEST_CASE("RootCauseWait: a lost peer is waited for until it has torn down") {
  RootCauseWait wait;
  wait.add_victim(kWaitStart, false);
  CHECK(wait.continues(kWaitStart + 3900ms, false));
  CHECK_FALSE(wait.continues(kWaitStart + 4s, true));
}

TEST_CASE("RootCauseWait: ambiguous messages hold the others up only while one of them is ending") {
  RootCauseWait wait;
  wait.add_victim(kWaitStart, true);
  CHECK(wait.continues(kWaitStart + 400ms, false));
  CHECK_FALSE(wait.continues(kWaitStart + 500ms, false));
  CHECK(wait.continues(kWaitStart + 3900ms, true));
  CHECK_FALSE(wait.continues(kWaitStart + 4s, true));
}

TEST_CASE("RootCauseWait: more victims are more time but not for ever") {
  RootCauseWait wait;
  for (auto time = kWaitStart; time < kWaitStart + 4s; time += 300ms) {
    wait.add_victim(time, true);
    CHECK(wait.continues(time + 50ms, false));
  }
  CHECK_FALSE(wait.continues(kWaitStart + 4s, false));
}

TEST_CASE("RootCauseWait: one that is sure decides") {
  RootCauseWait wait;
  wait.add_victim(kWaitStart, true);
  wait.add_victim(kWaitStart + 100ms, false);
  CHECK(wait.continues(kWaitStart + 3s, false));
}

}  // namespace
}  // namespace launcher
