#include <signal.h>

#include <string>

#include "launcher/local/report/failure_hints.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

RankEnd ended_by(int signal) {
  return {.signal = signal};
}

RankEnd ended_with(const std::string& words, int status = 1) {
  return {.exit_code = status, .last_lines = words};
}

TEST_CASE("EndCause: limits are named with their value and their option") {
  CHECK_THAT(end_cause(ended_by(SIGXCPU), {.cpu_seconds = 60}), ContainsSubstring("60 s on CPU time (ulimit -t)"));
  CHECK_THAT(end_cause(ended_by(SIGXFSZ), {.file_bytes = 1024}),
             ContainsSubstring("1024 bytes on the size of files (ulimit -f)"));
  CHECK_THAT(end_cause(ended_by(SIGXCPU), {}), ContainsSubstring("reached the limit on CPU time (ulimit -t)"));
}

TEST_CASE("EndCause: a kill at the limit on CPU time is not a lack of memory") {
  CHECK_THAT(end_cause(ended_by(SIGKILL), {.cpu_seconds = 2, .used_cpu_seconds = 1.8}), ContainsSubstring("ulimit -t"));
  CHECK(end_cause(ended_by(SIGKILL), {.cpu_seconds = 60, .used_cpu_seconds = 1}) == "");
  CHECK(end_cause(ended_by(SIGKILL), {.used_cpu_seconds = 1e6}) == "");
}

TEST_CASE("EndCause: what a shell returns of a killed command is explained as well") {
  CHECK_THAT(end_cause(ended_with("", 128 + SIGXFSZ), {}),
             ContainsSubstring("of a process that it started: it reached the limit"));
  CHECK(end_cause(ended_with("", 128 + SIGTERM), {}) == "");
  CHECK(end_cause(ended_with("", 3), {}) == "");
}

TEST_CASE("EndCause: a full /dev/shm explains a bus error, one with room does not") {
  CHECK_THAT(end_cause(ended_by(SIGBUS), {.free_shared_bytes = 0}), ContainsSubstring("/dev/shm is full"));
  CHECK(end_cause(ended_by(SIGBUS), {.free_shared_bytes = 1 << 30}) == "");
  CHECK_THAT(end_cause(ended_by(SIGILL), {}), ContainsSubstring("another processor"));
}

TEST_CASE("EndCause: last words of well-known troubles have their advice") {
  CHECK_THAT(end_cause(ended_with("./a: error while loading shared libraries: libx.so: cannot open", 127), {}),
             ContainsSubstring("LD_LIBRARY_PATH"));
  CHECK_THAT(end_cause(ended_with("./a: libc.so.6: version `GLIBC_2.38' not found (required by ./a)"), {}),
             ContainsSubstring("newer system"));
  CHECK_THAT(end_cause(ended_with("ModuleNotFoundError: No module named 'torch'"), {}),
             ContainsSubstring("PYTHON_EXEC"));
  CHECK_THAT(end_cause(ended_with("OSError: [Errno 24] Too many open files"), {}), ContainsSubstring("ulimit -n"));
  CHECK_THAT(
      end_cause(ended_with("terminate called after throwing an instance of 'std::bad_alloc'"), {.memory_bytes = 5}),
      ContainsSubstring("ulimit -v"));
  CHECK(end_cause(ended_with("std::bad_alloc"), {}) == "");
  CHECK(end_cause(ended_with("some other error"), {}) == "");
}

TEST_CASE("EndCause: an option of ddprun among those that the program does not know stands in the wrong place") {
  CHECK_THAT(end_cause(ended_with("train.py: error: unrecognized arguments: --nnodes 2", 2), {}),
             ContainsSubstring("--nnodes came after the program"));
  CHECK_THAT(end_cause(ended_with("train.py: error: unrecognized arguments: -n 2", 2), {}),
             ContainsSubstring("-n came after the program"));
  CHECK(end_cause(ended_with("train.py: error: unrecognized arguments: --epochs 2", 2), {}) == "");
  CHECK(end_cause(ended_with("the loss of --nnodes is nan"), {}) == "");
}

TEST_CASE("EndCause: nobody is told why ranks that ddprun stopped have ended") {
  RankEnd rank = ended_by(SIGXCPU);
  rank.stop_requested = true;
  CHECK(end_cause(rank, {}) == "");
  RankEnd refused = ended_with("error while loading shared libraries", 127);
  refused.was_executed = false;
  CHECK(end_cause(refused, {}) == "");
}

}  // namespace
}  // namespace launcher
