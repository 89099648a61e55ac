#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "launcher/os/system/signals.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using ddp::test::ElementsAre;

// In a process of its own, as masks and dispositions are for all of one. 0: all was well; else the number of the line.
int in_signalled_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1'000 + WTERMSIG(status);
}
#define EXPECT_HERE(condition) \
  if (!(condition)) return static_cast<int>(__LINE__ % 250 + 1)

TEST_CASE("SignalName: every signal of the system leads back to its number") {
  for (int number = 1; number < 32; ++number) {
    const std::string name = signal_name(number);
    CAPTURE(number, name);
    CHECK(name.starts_with("SIG"));
    CHECK(signal_number(name) == number);
    CHECK(signal_number(name.substr(3)) == number);
  }
}

TEST_CASE("SignalName: numbers without a name are shown, names without a number are none") {
  for (const int number : {-1, 0, 34, 64, 77, 1 << 30})
    CHECK(signal_name(number) == "signal " + std::to_string(number));
  for (const std::string name : {"", "SIG", "SIGSIGTERM", "sigterm", "TERM ", "15", "SIGNOTHING", "SIGRTMIN"}) {
    CAPTURE(name);
    CHECK_FALSE(signal_number(name));
  }
}

TEST_CASE("SignalList: names with commas, as torchrun's variable has them") {
  CHECK(signal_list(default_stop_signals()) == "SIGTERM,SIGINT,SIGHUP,SIGQUIT");
  CHECK(signal_list({}) == "");
  CHECK(signal_list({SIGUSR1}) == "SIGUSR1");
}

TEST_CASE("SignalSource: signals are read instead of taken, each kind once") {
  CHECK(in_signalled_child([] {
          SignalSource source({SIGTERM, SIGINT});
          EXPECT_HERE(!source.next());
          for (int i = 0; i < 5; ++i) ::raise(SIGTERM);
          ::raise(SIGUSR1);
          std::vector<int> seen;
          while (const auto info = source.next()) {
            EXPECT_HERE(info->ssi_pid == static_cast<std::uint32_t>(::getpid()));
            seen.push_back(static_cast<int>(info->ssi_signo));
          }
          EXPECT_HERE(seen == std::vector({SIGUSR1, SIGTERM}) || seen == std::vector({SIGTERM, SIGUSR1}));
          EXPECT_HERE(source.is_stop(SIGTERM) && source.is_stop(SIGINT) && !source.is_stop(SIGUSR1));
          return 0;
        }) == 0);
}

TEST_CASE("SignalSource: stop signals that were not chosen keep their effect") {
  CHECK(in_signalled_child([] {
          const SignalSource source({SIGTERM});
          ::raise(SIGHUP);
          return 1;
        }) == 1'000 + SIGHUP);
}

TEST_CASE("SignalSource: what was ignored at the start stays ignored, but for the end of children") {
  CHECK(in_signalled_child([] {
          ::signal(SIGHUP, SIG_IGN);
          ::signal(SIGUSR1, SIG_IGN);
          ::signal(SIGCHLD, SIG_IGN);
          SignalSource source(default_stop_signals());
          ::raise(SIGHUP);
          ::raise(SIGUSR1);
          EXPECT_HERE(!source.next());
          const pid_t child = ::fork();
          if (child == 0) ::_exit(7);
          siginfo_t info{};
          EXPECT_HERE(::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED) == 0 && info.si_status == 7);
          const auto seen = source.next();
          EXPECT_HERE(seen && seen->ssi_signo == SIGCHLD);
          return 0;
        }) == 0);
}

TEST_CASE("SignalSource: writing to nobody is an error and no end, and children get the mask from before") {
  CHECK(in_signalled_child([] {
          sigset_t usual;
          ::sigemptyset(&usual);
          ::sigaddset(&usual, SIGUSR2);
          ::sigprocmask(SIG_SETMASK, &usual, nullptr);
          const SignalSource source(default_stop_signals());
          for (const int number : {SIGPIPE, SIGTTOU, SIGTTIN, SIGXFSZ}) ::raise(number);
          for (int number = 1; number < 32; ++number) {
            EXPECT_HERE(::sigismember(&source.original_mask(), number) == (number == SIGUSR2 ? 1 : 0));
          }
          return 0;
        }) == 0);
}

TEST_CASE("SignalSource: the signals stay blocked when it is gone") {
  CHECK(in_signalled_child([] {
          { const SignalSource source(default_stop_signals()); }
          ::raise(SIGINT);
          return 0;
        }) == 0);
}

}  // namespace
}  // namespace launcher
