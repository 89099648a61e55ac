#include "launcher/os/system/captured_output.h"

#include <sys/wait.h>

#include <chrono>
#include <string>

#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kTimeout = 20s;

std::optional<std::string> shell(const std::string& script, std::chrono::milliseconds timeout = kTimeout) {
  return captured_output("/bin/sh", {"sh", "-c", script}, timeout);
}

// No child is left, dead or alive.
void check_nothing_left() {
  siginfo_t info{};
  CHECK((::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 && errno == ECHILD));
}

TEST_CASE("CapturedOutput: is the standard output, byte for byte") {
  CHECK(shell("printf 'a\\nb'") == "a\nb");
  CHECK(shell("true") == "");
  CHECK(shell("printf 'a\\0b' ") == std::string("a\0b", 3));
  check_nothing_left();
}

TEST_CASE("CapturedOutput: has no standard error and gives no input") {
  CHECK(shell("echo error >&2; cat; echo end") == "end\n");
}

TEST_CASE("CapturedOutput: arguments are not looked at") {
  CHECK(captured_output("/bin/echo", {"echo", "a b", "$HOME", ""}, kTimeout) == "a b $HOME \n");
}

TEST_CASE("CapturedOutput: there is none of a command that fails") {
  CHECK_FALSE(shell("echo text; exit 1"));
  CHECK_FALSE(shell("echo text; kill -9 $$"));
  CHECK_FALSE(captured_output("/no/such/file", {"file"}, kTimeout));
  check_nothing_left();
}

TEST_CASE("CapturedOutput: there is none of a command that says too much") {
  CHECK_FALSE(shell("while :; do echo 0123456789; done"));
  check_nothing_left();
}

TEST_CASE("CapturedOutput: a command that does not end is killed, whether its output is open or closed") {
  const std::string script = GENERATE("exec sleep 1000", "echo text; exec sleep 1000", "exec sleep 1000 >&-");
  CAPTURE(script);
  const auto begin = std::chrono::steady_clock::now();
  CHECK_FALSE(shell(script, 100ms));
  CHECK(std::chrono::steady_clock::now() - begin < kTimeout);
  check_nothing_left();
}

TEST_CASE("CapturedOutput: without any patience nothing is waited for") {
  CHECK_FALSE(shell("exec sleep 1000", 0ms));
  check_nothing_left();
}

}  // namespace
}  // namespace launcher
