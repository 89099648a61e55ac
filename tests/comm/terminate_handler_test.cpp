// What a process still does when an uncaught exception ends it. Each case dies in a process of its own.
#include "comm/core/terminate_handler.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "tests/support/catch.h"

// As gloo's own, which are told apart by their namespace.
namespace gloo {
struct EnforceNotMet : std::runtime_error {
  using std::runtime_error::runtime_error;
};
}  // namespace gloo

namespace ddp::detail {
namespace {

using Catch::Matchers::StartsWith;

struct End {
  std::string said;
  int status = 0;
};

// Runs `body` in a child process; what it writes to `out`, and how it ended.
End end_of(const std::function<void(int out)>& body) {
  int pipe[2] = {-1, -1};
  REQUIRE(::pipe(pipe) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(pipe[0]);
    ::close(2);                                                                // "terminate called after throwing …"
    for (const int number : {SIGABRT, SIGSEGV}) std::signal(number, SIG_DFL);  // not Catch2's
    std::set_terminate([] { std::abort(); });
    body(pipe[1]);
    ::_exit(0);
  }
  ::close(pipe[1]);
  REQUIRE(child > 0);
  End end;
  char buffer[256];
  for (ssize_t count = 0; (count = ::read(pipe[0], buffer, sizeof buffer)) > 0;) {
    end.said.append(buffer, static_cast<std::size_t>(count));
  }
  ::close(pipe[0]);
  REQUIRE(::waitpid(child, &end.status, 0) == child);
  return end;
}

void say(int out, const std::string& text) {
  static_cast<void>(!::write(out, text.data(), text.size()));
}

bool was_aborted(const End& end) {
  return WIFSIGNALED(end.status) && WTERMSIG(end.status) == SIGABRT;
}

// In a function that no exception may leave, since Catch2 would catch one.
void fail(const std::function<void()>& body) noexcept {
  body();
}

TEST_CASE("TerminateHandler: is called once with the exception's message, and the process ends as before") {
  const End end = end_of([](int out) {
    const TerminateHandler words([out](const UncaughtException& exception) {
      say(out, exception.what + (exception.is_mismatch ? " (mismatch)" : "") + "\n");
    });
    fail([] { throw std::runtime_error("no data"); });
  });
  CHECK(end.said == "no data\n");
  CHECK(was_aborted(end));
}

TEST_CASE("TerminateHandler: an exception of gloo's tells that this rank is a victim") {
  const End end = end_of([](int out) {
    const TerminateHandler words(
        [out](const UncaughtException& exception) { say(out, exception.is_mismatch ? "victim" : "guilty"); });
    fail([] { throw gloo::EnforceNotMet("op.preamble.length <= op.nbytes"); });
  });
  CHECK(end.said == "victim");
}

TEST_CASE("TerminateHandler: reports whatever ends the process") {
  const auto told = [](const std::function<void()>& how) {
    return end_of([&](int out) {
             const TerminateHandler words([out](const UncaughtException& exception) { say(out, exception.what); });
             fail(how);
           })
        .said;
  };
  CHECK(told([] { throw 5; }) == "an unknown exception");
  CHECK(told([] { std::terminate(); }) == "std::terminate()");
  CHECK(told([] { std::thread([] { throw std::logic_error("in a thread"); }).join(); }) == "in a thread");
  CHECK(told([] { const std::thread not_joined([] { ::pause(); }); }) == "std::terminate()");
}

TEST_CASE("TerminateHandler: every living one is called, and no destroyed one") {
  const End end = end_of([](int out) {
    const TerminateHandler first([out](const UncaughtException&) { say(out, "a"); });
    std::optional<TerminateHandler> second(std::in_place, [out](const UncaughtException&) { say(out, "b"); });
    const TerminateHandler third([out](const UncaughtException&) { say(out, "a"); });
    second.reset();
    fail([] { throw 5; });
  });
  CHECK(end.said == "aa");
}

TEST_CASE("TerminateHandler: the others are called after one that fails") {
  const End end = end_of([](int out) {
    const auto fails = [out](const UncaughtException&) {
      say(out, "x");
      throw std::runtime_error("the store is gone");
    };
    const TerminateHandler first(fails);
    const TerminateHandler second(fails);
    fail([] { throw 5; });
  });
  CHECK(end.said == "xx");
  CHECK(was_aborted(end));
}

TEST_CASE("TerminateHandler: is called by the first of several threads that fail") {
  const End end = end_of([](int out) {
    const TerminateHandler words([out](const UncaughtException& exception) { say(out, exception.what + "\n"); });
    std::thread threads[4];
    for (std::thread& thread : threads) {
      thread = std::thread([] { throw std::runtime_error("a thread"); });
    }
    for (std::thread& thread : threads) thread.join();
  });
  CHECK(end.said == "a thread\n");
  CHECK(was_aborted(end));
}

TEST_CASE("TerminateHandler: the previous handler of std::terminate follows") {
  const End end = end_of([](int out) {
    static int where = -1;
    where = out;
    std::set_terminate([] {
      say(where, "before");
      ::_exit(42);
    });
    const TerminateHandler words([out](const UncaughtException&) { say(out, "words, "); });
    fail([] { throw 5; });
  });
  CHECK(end.said == "words, before");
  REQUIRE(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == 42);
}

TEST_CASE("TerminateHandler: is not called for an exception that is caught") {
  const End end = end_of([](int out) {
    const TerminateHandler words([out](const UncaughtException&) { say(out, "words"); });
    try {
      throw std::runtime_error("caught");
    } catch (const std::exception&) {
      say(out, "caught");
    }
  });
  CHECK(end.said == "caught");
  REQUIRE(WIFEXITED(end.status));
  CHECK(WEXITSTATUS(end.status) == 0);
}

}  // namespace
}  // namespace ddp::detail
