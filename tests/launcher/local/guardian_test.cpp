#include "launcher/local/processes/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <functional>
#include <string>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"
#include "tests/support/files.h"
#include "tests/support/temporary_folder.h"

namespace launcher {
namespace {

using Catch::Matchers::ContainsSubstring;

// Starts a process that ignores what asks it to end, and returns its number.
pid_t start_stubborn() {
  Pipe ready = make_pipe();
  const pid_t child = ::fork();
  if (child == 0) {
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) ::signal(number, SIG_IGN);
    ::setsid();
    ::execlp("sleep", "sleep", "1000", nullptr);
    ::_exit(1);
  }
  ready.writer.reset();
  char byte = 0;
  while (::read(ready.reader.get(), &byte, 1) < 0) {  // the end of the file: it has been executed
  }
  return child;
}

bool is_gone(pid_t pid) {
  const auto process = identify(pid);
  return !process || process->state == 'Z';
}

// In the supervisor: until the guardian is gone.
void wait_for_end_of(const UniqueFd& guardian_pipe) {
  pollfd event{.fd = guardian_pipe.get(), .events = POLLIN, .revents = 0};
  while (::poll(&event, 1, -1) < 1) {
  }
}

class GuardianTest {
 protected:
  // What comes of a guarded job: the status that the guardian ends with, and what it says.
  std::string guarded(
      const std::function<SupervisedEnd(SupervisorContext)>& supervise,
      const std::function<void()>& before = [] {}) const {
    return in_child([&] {
      before();
      const int said = ::memfd_create("said", 0);
      ::dup2(said, STDERR_FILENO);
      ProcessTitle title(1, &program_invocation_name);  // where the kernel has main()'s
      SignalSource signals(default_stop_signals());
      const pid_t self = ::getpid();
      const int status = run_with_guardian(signals, title, supervise);
      if (::getpid() != self) ::_exit(status);
      std::string text(1'000, '\0');
      const ssize_t count = ::pread(said, text.data(), text.size(), 0);
      text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
      return std::to_string(status) + " " + text;
    });
  }
  // Numbers that processes leave for the test.
  void note(const std::string& name, pid_t pid) const { ddp::test::write_file(folder_ / name, std::to_string(pid)); }
  pid_t noted(const std::string& name) const {
    comes_true([&] { return !ddp::test::read_file(folder_ / name).empty(); });
    const std::string text = ddp::test::read_file(folder_ / name);
    return text.empty() ? 0 : std::stoi(text);
  }

  ddp::test::TemporaryFolder folder_;
};

TEST_CASE_METHOD(GuardianTest, "Guardian: ends with the supervisor's status, whatever it is") {
  for (const int status : {0, 1, 85, 124, 255}) {
    CHECK(guarded([=](SupervisorContext) { return SupervisedEnd{.exit_status = status, .needs_no_sweep = true}; }) ==
          std::to_string(status) + " ");
    CHECK(guarded([=](SupervisorContext) { return SupervisedEnd{.exit_status = status, .needs_no_sweep = false}; }) ==
          std::to_string(status) + " ");
  }
}

TEST_CASE_METHOD(GuardianTest,
                 "Guardian: the supervisor is two processes below, in groups of their own, and knows the guardian") {
  const std::string answer = guarded([&](SupervisorContext guarded) {
    const pid_t self = ::getpid();
    const pid_t sweeper = ::getppid();
    int status = 0;
    if (identify(sweeper)->parent != guarded.guardian) status |= 1;
    if (::getpgid(guarded.guardian) != guarded.guardian_group) status |= 2;
    if (::getpgrp() != self || ::getpgid(sweeper) != sweeper) status |= 4;
    pollfd guardian_pipe{.fd = guarded.guardian_pipe.get(), .events = POLLIN, .revents = 0};
    if (::poll(&guardian_pipe, 1, 0) != 0) status |= 8;  // the guardian lives
    return SupervisedEnd{.exit_status = status, .needs_no_sweep = true};
  });
  CHECK(answer == "0 ");
}

TEST_CASE_METHOD(GuardianTest, "Guardian: the sweeper has a name that nobody kills who means ddprun") {
  const std::string answer = guarded([&](SupervisorContext guarded) {
    const std::string folder = "/proc/" + std::to_string(::getppid());
    // Up to its first end: what the test was started with follows.
    const std::string shown =
        ddp::test::read_file(folder + "/comm") + ddp::test::read_file(folder + "/cmdline").c_str();
    int status = shown.find("ddprun") != std::string::npos ? 1 : 0;
    if (shown.find(program_invocation_name) != std::string::npos) status |= 1;
    if (shown.find("rank-sweeper") == std::string::npos) status |= 2;
    if (ddp::test::read_file("/proc/self/comm").find("rank-sweeper") != std::string::npos) status |= 4;
    if (guarded.guardian <= 1) status |= 8;
    return SupervisedEnd{.exit_status = status, .needs_no_sweep = true};
  });
  CHECK(answer == "0 ");
}

TEST_CASE_METHOD(GuardianTest, "Guardian: what the supervisor did not settle is ended") {
  CHECK(guarded([&](SupervisorContext) {
          note("left", start_stubborn());
          return SupervisedEnd{.exit_status = 7, .needs_no_sweep = false};
        }) == "7 ");
  CHECK(is_gone(noted("left")));
}

TEST_CASE_METHOD(GuardianTest, "Guardian: what is meant to stay stays") {
  CHECK(guarded([&](SupervisorContext) {
          note("kept", start_stubborn());
          return SupervisedEnd{.exit_status = 0, .needs_no_sweep = true};
        }) == "0 ");
  const pid_t kept = noted("kept");
  CHECK_FALSE(is_gone(kept));
  ::kill(kept, SIGKILL);
}

TEST_CASE_METHOD(GuardianTest,
                 "Guardian: when the supervisor is killed, all that it started is ended, however far below") {
  for (const int number : {SIGKILL, SIGSEGV, SIGABRT}) {
    CAPTURE(number);
    const std::string answer = guarded([&](SupervisorContext) -> SupervisedEnd {
      note("child", start_stubborn());
      const pid_t between = ::fork();
      if (between == 0) {
        note("daemon", start_stubborn());
        ::_exit(0);
      }
      ::waitpid(between, nullptr, 0);
      ::raise(number);
      return {};
    });
    CHECK(answer ==
          "125 ddprun: its supervising process was killed by " + signal_name(number) + "; all ranks have been ended\n");
    CHECK(is_gone(noted("child")));
    CHECK(is_gone(noted("daemon")));
  }
}

TEST_CASE_METHOD(GuardianTest,
                 "Guardian: when the sweeper is killed, the supervisor is let to end everything, and that is said") {
  const std::string answer = guarded([&](SupervisorContext guarded) {
    const pid_t child = start_stubborn();
    note("child", child);
    ::kill(::getppid(), SIGKILL);
    wait_for_end_of(guarded.guardian_pipe);
    note("supervisor saw it", 1);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    return SupervisedEnd{.exit_status = 3, .needs_no_sweep = true};
  });
  CHECK(answer == "125 ddprun: its sweeping process was killed by SIGKILL; all ranks have been ended\n");
  CHECK(noted("supervisor saw it") == 1);
  CHECK(is_gone(noted("child")));
}

TEST_CASE_METHOD(GuardianTest, "Guardian: when sweeper and supervisor are killed, the guardian ends what is left") {
  const std::string answer = guarded([&](SupervisorContext) -> SupervisedEnd {
    note("child", start_stubborn());
    ::kill(::getppid(), SIGKILL);
    ::raise(SIGKILL);
    return {};
  });
  CHECK_THAT(answer, Catch::Matchers::StartsWith("125 ddprun: its sweeping process was killed by SIGKILL"));
  CHECK(is_gone(noted("child")));
}

TEST_CASE_METHOD(GuardianTest,
                 "Guardian: when it is killed itself, the supervisor learns it, even when it was stopped") {
  for (const bool is_stopped : {false, true}) {
    CAPTURE(is_stopped);
    const std::string answer = guarded([&](SupervisorContext guarded) {
      note("supervisor", ::getpid());
      note("child", start_stubborn());
      note("sweeper", ::getppid());
      const pid_t killer = ::fork();
      if (killer == 0) {
        ::setsid();
        const pid_t supervisor = ::getppid();
        if (is_stopped) {
          ::kill(supervisor, SIGSTOP);
          comes_true([&] { return identify(supervisor)->state == 'T'; });
        }
        ::kill(guarded.guardian, SIGKILL);
        ::_exit(0);
      }
      wait_for_end_of(guarded.guardian_pipe);
      return SupervisedEnd{.exit_status = 0, .needs_no_sweep = false};
    });
    CHECK(answer == "was killed by signal 9");
    const pid_t child = noted("child");
    const pid_t sweeper = noted("sweeper");
    CHECK(comes_true([&] { return is_gone(child); }));
    CHECK(comes_true([&] { return is_gone(noted("supervisor")) && is_gone(sweeper); }));
    for (const char* name : {"child", "sweeper", "supervisor"}) ddp::test::write_file(folder_ / name, "");
  }
}

TEST_CASE_METHOD(GuardianTest, "Guardian: when guardian and supervisor are killed, the sweeper ends what is left") {
  const std::string answer = guarded([&](SupervisorContext guarded) -> SupervisedEnd {
    note("child", start_stubborn());
    note("sweeper", ::getppid());
    ::kill(guarded.guardian, SIGKILL);
    ::raise(SIGKILL);
    return {};
  });
  CHECK(answer == "was killed by signal 9");
  const pid_t child = noted("child");
  const pid_t sweeper = noted("sweeper");
  CHECK(comes_true([&] { return is_gone(child) && is_gone(sweeper); }));
}

TEST_CASE_METHOD(GuardianTest, "Guardian: passes on what it is told, each signal once") {
  const std::string answer = guarded([&](SupervisorContext guarded) {
    std::string seen;
    pollfd event{.fd = guarded.signals.fd(), .events = POLLIN, .revents = 0};
    for (const int number : {SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGHUP, SIGCONT, SIGINT}) {
      ::kill(guarded.guardian, number);
      const std::size_t before = seen.size();
      while (seen.size() == before && ::poll(&event, 1, 20'000) == 1) {
        while (const auto info = guarded.signals.next()) {
          if (info->ssi_signo != SIGCHLD) seen += std::to_string(info->ssi_signo) + " ";
        }
      }
    }
    note("seen", 1);
    ddp::test::write_file(folder_ / "signals", seen);
    return SupervisedEnd{.exit_status = 0, .needs_no_sweep = true};
  });
  CHECK(answer == "0 ");
  CHECK(ddp::test::read_file(folder_ / "signals") == "15 10 12 28 1 18 2 ");
}

TEST_CASE_METHOD(GuardianTest, "Guardian: children from before are not ddprun's to end") {
  const std::string answer = guarded(
      [&](SupervisorContext) -> SupervisedEnd {
        note("child", start_stubborn());
        ::raise(SIGKILL);
        return {};
      },
      [&] { note("stranger", start_stubborn()); });
  CHECK_THAT(answer, ContainsSubstring("its supervising process was killed"));
  const pid_t stranger = noted("stranger");
  CHECK_FALSE(is_gone(stranger));
  CHECK(is_gone(noted("child")));
  ::kill(stranger, SIGKILL);
}

TEST_CASE_METHOD(GuardianTest, "Guardian: children of others that end meanwhile are not taken for its own") {
  const std::string answer = guarded(
      [&](SupervisorContext guarded) {
        ::kill(noted("stranger"), SIGKILL);
        comes_true([&] { return !identify(noted("stranger")); });  // reaped: it is process 1 in many a container
        const int status = identify(guarded.guardian) ? 9 : 1;
        return SupervisedEnd{.exit_status = status, .needs_no_sweep = true};
      },
      [&] { note("stranger", start_stubborn()); });
  CHECK(answer == "9 ");
}

}  // namespace
}  // namespace launcher
