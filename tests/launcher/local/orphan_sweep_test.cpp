#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <string>

#include "launcher/local/processes/orphans.h"
#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

struct Said : Messages {
  void print(std::string_view line) override { text.append(line).append("\n"); }
  void print_lines(std::string_view lines) override { text.append(lines); }
  std::string text;
};

// A sweep over the children of this process, which are reaped as a supervisor does it.
class Sweeping {
 public:
  ~Sweeping() {
    orphans_.kill();
    while (::waitpid(-1, nullptr, 0) > 0) {
    }
  }
  static pid_t start(bool ignores) {
    const Pipe ready = make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      if (ignores) ::signal(SIGTERM, SIG_IGN);
      [[maybe_unused]] const ssize_t written = ::write(ready.writer.get(), "", 1);
      while (true) ::pause();
    }
    char byte = 0;
    if (::read(ready.reader.get(), &byte, 1) != 1) throw std::runtime_error("the child did not start");
    return child;
  }
  // Runs the loop until the sweep has ended, or for so long.
  std::string run_for(EventLoop::Clock::duration time) {
    const auto end = EventLoop::Clock::now() + time;
    while (events_.empty() && EventLoop::Clock::now() < end) {
      loop_.call_at(EventLoop::Clock::now() + 1ms, [] {});
      loop_.run_once();
      while (::waitpid(-1, nullptr, WNOHANG) > 0) ++reaped_;
    }
    return events_ + std::to_string(reaped_) + " ";
  }

  EventLoop loop_;
  Said said_;
  Orphans orphans_{nullptr};
  Phase phase_ = Phase::kEndingOrphans;
  std::string events_;
  int reaped_ = 0;
  std::optional<OrphanSweep> sweep_{
      std::in_place, loop_, said_, orphans_, phase_, [this](PhaseEvent event) {
        events_ += event == PhaseEvent::kAllGone ? "all gone " : event == PhaseEvent::kGiveUp ? "gives up " : "? ";
      }};
};

TEST_CASE("OrphanSweep: ends at once where there is nobody") {
  CHECK(in_child([] {
          Sweeping sweeping;
          sweeping.sweep_->begin();
          return sweeping.events_ + sweeping.said_.text;
        }) == "all gone ");
}

TEST_CASE("OrphanSweep: asks, waits and tells once when all are gone") {
  CHECK(in_child([] {
          Sweeping sweeping;
          for (int i = 0; i < 3; ++i) Sweeping::start(false);
          sweeping.sweep_->begin();
          if (!sweeping.events_.empty()) return std::string("too early");
          sweeping.run_for(20s);
          return sweeping.run_for(1s) + sweeping.said_.text;
        }) == "all gone 3 ");
}

TEST_CASE("OrphanSweep: what does not want to end is left alone until it is to be killed") {
  CHECK(in_child([] {
          Sweeping sweeping;
          Sweeping::start(true);
          Sweeping::start(false);
          sweeping.sweep_->begin();
          std::string text = sweeping.run_for(600ms);
          sweeping.phase_ = Phase::kKillingOrphans;
          sweeping.sweep_->shorten_interval();
          return text + sweeping.run_for(20s);
        }) == "1 all gone 2 ");
}

TEST_CASE("OrphanSweep: what appears while it looks is found too") {
  CHECK(in_child([] {
          ::prctl(PR_SET_CHILD_SUBREAPER, 1);
          Sweeping sweeping;
          const pid_t parent = ::fork();
          if (parent == 0) {  // at its end it leaves one more
            ::signal(SIGTERM, [](int) {
              if (::fork() == 0) {
                ::signal(SIGTERM, SIG_DFL);
                sigset_t none;
                ::sigemptyset(&none);
                while (true) ::sigsuspend(&none);
              }
              ::_exit(0);
            });
            while (true) ::pause();
          }
          if (!comes_true([&] { return identify(parent)->state == 'S'; })) return std::string("does not wait");
          sweeping.sweep_->begin();
          return sweeping.run_for(20s);
        }) == "all gone 2 ");
}

TEST_CASE("OrphanSweep: is over when the attempt is, and calls nobody when it is gone") {
  CHECK(in_child([] {
          Sweeping sweeping;
          Sweeping::start(true);
          sweeping.sweep_->begin();
          sweeping.phase_ = Phase::kDone;
          sweeping.run_for(300ms);
          sweeping.phase_ = Phase::kKillingOrphans;
          std::string text = sweeping.run_for(600ms);  // it has stopped to look
          sweeping.sweep_->begin();
          sweeping.sweep_.reset();
          return text + sweeping.run_for(300ms);
        }) == "0 1 ");
}

}  // namespace
}  // namespace launcher
