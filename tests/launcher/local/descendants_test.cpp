#include "launcher/local/processes/descendants.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

const std::string kTail = " 1 2 3 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 111 222";

TEST_CASE("ProcessStat: fields are found behind any command") {
  const auto command = GENERATE(values<std::string>({"(sh)", "(a b)", "(a) S 9 (b)", "())", "(\n)"}));
  CAPTURE(command);
  const auto process = parse_process_stat("123 " + command + " S 77" + kTail);
  REQUIRE(process);
  CHECK(process->pid == 123);
  CHECK(process->state == 'S');
  CHECK(process->parent == 77);
  CHECK(process->group == 1);
  CHECK_FALSE(process->is_ending);
  CHECK(process->start_time == 987654U);
}

TEST_CASE("ProcessStat: who is on its way out is known") {
  for (const std::uint64_t flag : {0x4, 0x8, 0x200}) {
    CAPTURE(flag);
    std::string tail = kTail;
    tail.replace(tail.find("4194560"), 7, std::to_string(4194560 | flag));
    CHECK(parse_process_stat("123 (sh) R 77" + tail)->is_ending);
  }
}

TEST_CASE("ProcessStat: what is truncated is refused") {
  const std::string whole = "123 (sh) S 77" + kTail;
  const std::size_t needed = whole.find(" 111");
  for (std::size_t length = 0; length < needed - 6; ++length) {
    CAPTURE(length);
    CHECK_FALSE(parse_process_stat(whole.substr(0, length)));
  }
  CHECK_FALSE(parse_process_stat("x (sh) S 77" + kTail));
  UNSCOPED_INFO("a signal to -1 reaches everybody");
  CHECK_FALSE(parse_process_stat("-1 (sh) S 77" + kTail));
  CHECK_FALSE(parse_process_stat("0 (sh) S 77" + kTail));
}

TEST_CASE("Descendants: are found and signalled only while they are themselves") {
  const pid_t child = fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    pause();
    _exit(0);
  }
  const auto found = descendants_of(getpid());
  const auto ours = std::find_if(found.begin(), found.end(), [&](const auto& process) { return process.pid == child; });
  REQUIRE(ours != found.end());
  CHECK(ours->parent == getpid());

  ProcessIdentity successor = *ours;  // the same number, but started at another time
  successor.start_time += 1;
  CHECK_FALSE(signal_process(successor, SIGKILL));
  CHECK(signal_process(*ours, 0));
  CHECK(signal_process(*ours, SIGKILL));
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(WTERMSIG(status) == SIGKILL);
  CHECK_FALSE(signal_process(*ours, SIGKILL));
}

}  // namespace
}  // namespace launcher
