#include "launcher/report/failure_hints.h"

#include <csignal>

#include "tests/support/catch.h"

namespace launcher {
namespace {

RankEnd crashed(int signal_number, bool dumped) {
  return {.pid = 123, .signal = signal_number, .core_dumped = dumped};
}

TEST_CASE("CoreHint: says where to look") {
  const RankEnd rank = crashed(SIGSEGV, true);
  CHECK(core_hint(rank, "core.%p\n", RLIM_INFINITY, "/job") == "core file: /job/core.123");
  CHECK(core_hint(rank, "/cores/%p%%x", 1, "/job") == "core file: named by the pattern /cores/%p%%x");
  CHECK(core_hint(rank, "/cores/core-%p", 1, "/job") == "core file: /cores/core-123");
  CHECK(core_hint(rank, "core", 1, "/nowhere") == "core file: /nowhere/core");
  CHECK(core_hint(rank, "|/usr/lib/systemd/systemd-coredump %P %u\n", 0, "/job") == "core file: coredumpctl debug 123");
  CHECK(core_hint(rank, "|/usr/share/apport/apport -p%p", 0, "/job") ==
        "the core file was given to /usr/share/apport/apport, see /proc/sys/kernel/core_pattern");
}

TEST_CASE("CoreHint: says that there is no core only where there could have been one") {
  CHECK(core_hint(crashed(SIGABRT, false), "core", 0, "/job") != "");
  CHECK(core_hint(crashed(SIGABRT, false), "core", 1000, "/job") == "");
  UNSCOPED_INFO("leaves no core");
  CHECK(core_hint(crashed(SIGTERM, false), "core", 0, "/job") == "");
  CHECK(core_hint({.exit_code = 1}, "core", 0, "/job") == "");
}

TEST_CASE("CounterIn: is the number behind the whole name") {
  CHECK(counter_in("low 0\noom 3\noom_kill 2\noom_group_kill 1\n", "oom_kill") == 2);
  CHECK(counter_in("oom_kill_disable 0\nunder_oom 0\noom_kill 17", "oom_kill") == 17);
  CHECK(counter_in("oom_kill\noom_kill x\n", "oom_kill") == std::nullopt);
  CHECK(counter_in("", "oom_kill") == std::nullopt);
}

TEST_CASE("FailureHints: there is one for a kill that nobody explains") {
  CHECK(failure_hints(crashed(SIGKILL, false), std::nullopt, "/job").size() == 1U);
  CHECK(failure_hints({.exit_code = 3}, std::nullopt, "/job").empty());
  RankEnd stopped = crashed(SIGKILL, false);
  stopped.told_to_stop = true;
  CHECK(failure_hints(stopped, std::nullopt, "/job").empty());
}

}  // namespace
}  // namespace launcher
