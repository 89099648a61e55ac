#include "launcher/local/report/failure_hints.h"

#include <chrono>
#include <csignal>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

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

TEST_CASE("CoreHint: the name of the program that gets the core is found however it is written") {
  const RankEnd rank = crashed(SIGSEGV, true);
  for (const char* pattern : {"|/bin/handler", "|/bin/handler\n", "| /bin/handler %p %s", "|   /bin/handler %e\n\n"}) {
    CAPTURE(pattern);
    CHECK(core_hint(rank, pattern, 0, "/job") ==
          "the core file was given to /bin/handler, see /proc/sys/kernel/core_pattern");
  }
}

TEST_CASE("CoreHint: the file that is there is named, with the number that the kernel adds") {
  const ddp::test::TemporaryFolder folder;
  const RankEnd rank = crashed(SIGABRT, true);
  const std::string path = folder.path();
  CHECK(core_hint(rank, "core", 1, path) == "core file: " + path + "/core");
  ddp::test::write_file(folder / "core.123", "");
  CHECK(core_hint(rank, "core", 1, path) == "core file: " + path + "/core.123");
  CHECK(core_hint(rank, path + "/core", 1, "/job") == "core file: " + path + "/core.123");
  CHECK(core_hint(rank, "core.%p", 1, path) == "core file: " + path + "/core.123");
  CHECK(core_hint(rank, "core.%p.%P", 1, path) == "core file: " + path + "/core.123.123");
}

TEST_CASE("CoreHint: patterns that only the kernel can fill in are shown as they are") {
  const RankEnd rank = crashed(SIGABRT, true);
  for (const std::string pattern : {"core.%e", "core.%h.%p", "core%", "%", "core.%t"}) {
    CAPTURE(pattern);
    CHECK(core_hint(rank, pattern + "\n", 1, "/job") == "core file: named by the pattern /job/" + pattern);
  }
}

TEST_CASE("CoreHint: every signal that leaves a core has its hint, and no other") {
  for (int number = 1; number < 32; ++number) {
    CAPTURE(number);
    const bool leaves_core = number == SIGQUIT || number == SIGILL || number == SIGABRT || number == SIGFPE ||
                             number == SIGSEGV || number == SIGBUS || number == SIGSYS || number == SIGTRAP ||
                             number == SIGXCPU || number == SIGXFSZ;
    CHECK(core_hint(crashed(number, false), "core", 0, "/job").empty() != leaves_core);
  }
  CHECK(core_hint(crashed(SIGSEGV, false), "|/bin/handler", 0, "/job") == "");  // which has no limit
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

TEST_CASE("CounterIn: numbers of every size and files of every kind are read or not") {
  CHECK(counter_in("oom_kill 0", "oom_kill") == 0);
  CHECK(counter_in("oom_kill 9223372036854775807\n", "oom_kill") == 9223372036854775807L);
  CHECK(counter_in("oom_kill 9223372036854775808\n", "oom_kill") == std::nullopt);
  CHECK(counter_in("\n\n\noom_kill 3", "oom_kill") == 3);
  CHECK(counter_in("xoom_kill 1\noom_kill\t2\noom_kill  3\n", "oom_kill") == std::nullopt);
  CHECK(counter_in(std::string(100'000, '\n'), "oom_kill") == std::nullopt);
  CHECK(counter_in(std::string(1'000, '\0'), "oom_kill") == std::nullopt);
}

TEST_CASE("FailureDetails: are for the first failure on this node alone") {
  JobEnd end;
  end.ranks = {crashed(SIGKILL, false), crashed(SIGTERM, false)};
  end.ranks[0].time = end.ranks[1].time - std::chrono::seconds(1);
  int asked = 0;
  const auto gpu_of = [&](int) {
    ++asked;
    return std::string();
  };
  add_failure_details(end, std::nullopt, "", gpu_of);
  CHECK(end.hints.size() == 1);
  JobEnd elsewhere = end;
  elsewhere.hints.clear();
  elsewhere.elsewhere = FailureNotice{};
  asked = 0;
  add_failure_details(elsewhere, std::nullopt, "", gpu_of);
  CHECK(elsewhere.hints.empty());
  CHECK(asked == 0);
  JobEnd good;
  good.ranks = {{.rank = 0}};
  add_failure_details(good, std::nullopt, "", gpu_of);
  CHECK(good.hints.empty());
  CHECK(asked == 0);
}

TEST_CASE("FailureHints: there is one for a kill that nobody explains") {
  CHECK(failure_hints(crashed(SIGKILL, false), std::nullopt, "/job").size() == 1U);
  CHECK(failure_hints({.exit_code = 3}, std::nullopt, "/job").empty());
  CHECK(failure_hints(crashed(SIGKILL, false), std::nullopt, "/job", "a timer") == std::vector<std::string>{"a timer"});
  RankEnd stopped = crashed(SIGKILL, false);
  stopped.stop_requested = true;
  CHECK(failure_hints(stopped, std::nullopt, "/job").empty());
}

}  // namespace
}  // namespace launcher
