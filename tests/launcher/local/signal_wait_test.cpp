#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <thread>

#include "launcher/local/processes/descendants.h"
#include "launcher/local/processes/user_signals.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

sigset_t set_of(std::initializer_list<int> numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) ::sigaddset(&set, number);
  return set;
}

// A child that does something for ever.
class Child {
 public:
  explicit Child(const std::function<void()>& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigset_t all;
    ::sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    body();
    ::_exit(0);
  }
  ~Child() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  bool comes_to_wait_for(int number) const {
    return comes_true([&] { return is_in_sigwait(pid_, number); });
  }
  bool sleeps() const {
    return comes_true([&] { return identify(pid_)->state == 'S'; });
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_;
};

TEST_CASE("SignalWait: is known of who is in sigwait, sigwaitinfo or sigtimedwait, for its signals only") {
  const Child waits([] {
    const sigset_t set = set_of({SIGUSR1, SIGTERM});
    int number = 0;
    ::sigwait(&set, &number);
  });
  if (!waits.comes_to_wait_for(SIGUSR1)) SKIP("the kernel does not let us look");
  CHECK(is_in_sigwait(waits.pid(), SIGTERM));
  CHECK_FALSE(is_in_sigwait(waits.pid(), SIGUSR2));
  CHECK_FALSE(is_in_sigwait(waits.pid(), SIGHUP));
  const Child informed([] {
    const sigset_t set = set_of({SIGUSR2});
    siginfo_t info{};
    ::sigwaitinfo(&set, &info);
  });
  CHECK(informed.comes_to_wait_for(SIGUSR2));
  const Child timed([] {
    const sigset_t set = set_of({SIGUSR2, SIGRTMAX});
    const timespec time{.tv_sec = 1'000, .tv_nsec = 0};
    ::sigtimedwait(&set, nullptr, &time);
  });
  CHECK(timed.comes_to_wait_for(SIGUSR2));
  CHECK(is_in_sigwait(timed.pid(), SIGRTMAX));  // the highest there is
}

TEST_CASE("SignalWait: any thread of the process will do") {
  const Child threads([] {
    const std::thread waits([] {
      const sigset_t set = set_of({SIGUSR1});
      int number = 0;
      ::sigwait(&set, &number);
    });
    while (true) ::pause();
  });
  CHECK(threads.comes_to_wait_for(SIGUSR1));
}

TEST_CASE("SignalWait: who sleeps, runs or reads does not wait for signals") {
  const Child pauses([] {
    while (true) ::pause();
  });
  const Child reads([] {
    const sigset_t set = set_of({SIGUSR1});
    const int fd = ::signalfd(-1, &set, 0);
    signalfd_siginfo info{};
    [[maybe_unused]] const ssize_t count = ::read(fd, &info, sizeof info);
  });
  const Child runs([] {
    volatile bool goes_on = true;
    while (goes_on) {
    }
  });
  REQUIRE(pauses.sleeps());
  REQUIRE(reads.sleeps());
  for (const pid_t pid : {pauses.pid(), reads.pid(), runs.pid()}) CHECK_FALSE(is_in_sigwait(pid, SIGUSR1));
}

TEST_CASE("SignalWait: processes that are gone, or never were, wait for nothing") {
  pid_t gone = 0;
  {
    const Child child([] {});
    gone = child.pid();
  }
  for (const pid_t pid : {gone, pid_t{0}, pid_t{-1}, pid_t{1 << 30}}) CHECK_FALSE(is_in_sigwait(pid, SIGUSR1));
}

}  // namespace
}  // namespace launcher
