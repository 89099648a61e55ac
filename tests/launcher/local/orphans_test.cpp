#include "launcher/local/processes/orphans.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

int signal_pipe = -1;

void write_number(int number) {
  const char byte = static_cast<char>(number);
  [[maybe_unused]] const ssize_t written = ::write(signal_pipe, &byte, 1);
}

// Children of this process that write down which signals they get and go on.
class Children {
 public:
  Children() : seen_(make_pipe(O_NONBLOCK)) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

  ~Children() {
    for (const ProcessIdentity& process : descendants_of(::getpid())) signal_process(process, SIGKILL);
  }
  Children(const Children&) = delete;
  Children& operator=(const Children&) = delete;

  struct Ways {
    std::vector<int> handled{};
    std::vector<int> handled_once{};
    std::vector<int> ignored{};
    pid_t group = 0;  // a new one
  };
  pid_t start(const Ways& ways) {
    const Pipe ready = make_pipe();
    const pid_t child = ::fork();
    if (child == 0) {
      signal_pipe = seen_.writer.get();
      ::setpgid(0, ways.group);
      for (const int number : ways.handled) ::signal(number, write_number);
      struct sigaction once {};
      once.sa_handler = write_number;
      once.sa_flags = static_cast<int>(SA_RESETHAND);
      for (const int number : ways.handled_once) ::sigaction(number, &once, nullptr);
      for (const int number : ways.ignored) ::signal(number, SIG_IGN);
      [[maybe_unused]] const ssize_t written = ::write(ready.writer.get(), "", 1);
      while (true) ::pause();
    }
    char byte = 0;
    if (::read(ready.reader.get(), &byte, 1) != 1) throw std::runtime_error("the child did not start");
    return child;
  }
  // Signals that were seen, as text.
  std::string seen() const {
    std::string text;
    char number = 0;
    while (::read(seen_.reader.get(), &number, 1) == 1) text += std::to_string(static_cast<int>(number)) + " ";
    return text;
  }
  // Signals that were seen once `count` of them have come.
  std::string seen(std::size_t count) const {
    std::string text;
    comes_true([&] {
      text += seen();
      return static_cast<std::size_t>(std::count(text.begin(), text.end(), ' ')) >= count;
    });
    return text;
  }
  static std::string end_of(pid_t child) {
    int status = 0;
    if (!comes_true([&] { return ::waitpid(child, &status, WNOHANG) == child; })) return "runs";
    return WIFSIGNALED(status) ? "signal " + std::to_string(WTERMSIG(status)) : "status";
  }
  // A signal that the child handles, sent after the others, so that those have been seen.
  std::string seen_before(pid_t child, int last) const {
    ::kill(child, last);
    std::string text;
    comes_true([&] {
      text += seen();
      return text.find(std::to_string(last) + " ") != std::string::npos;
    });
    return text;
  }

 private:
  Pipe seen_;
};

TEST_CASE("Orphans: who has a handler is asked once, however often one asks") {
  CHECK(in_child([] {
          Children children;
          const pid_t child = children.start({.handled = {SIGTERM, SIGUSR1}});
          Orphans orphans(nullptr);
          orphans.ask();
          std::string text = children.seen(1);
          for (int i = 0; i < 5; ++i) orphans.ask();
          return text += children.seen_before(child, SIGUSR1);
        }) == "15 10 ");
}

// What a child sees whose group is interrupted before it is asked twice; SIGUSR1 tells that nothing more came.
std::string seen_after_an_interrupt(const Children::Ways& ways) {
  return in_child([&] {
    Children children;
    const pid_t child = children.start(ways);
    Orphans orphans(nullptr);
    ::kill(-child, SIGINT);
    orphans.note_asked(child, SIGINT);
    orphans.ask();
    std::string text = children.seen(1);
    orphans.ask();
    return text += children.seen_before(child, SIGUSR1);
  });
}

TEST_CASE("Orphans: who was asked with its group is not asked once more") {
  CHECK(seen_after_an_interrupt({.handled = {SIGTERM, SIGINT, SIGUSR1}}) == "2 10 ");
}

TEST_CASE("Orphans: who ignores the signal that its group was asked with is asked with another") {
  CHECK(seen_after_an_interrupt({.handled = {SIGTERM, SIGUSR1}, .ignored = {SIGINT}}) == "15 10 ");
}

TEST_CASE("Orphans: another group was not asked") {
  CHECK(in_child([] {
          Children children;
          const pid_t asked = children.start({.handled = {SIGTERM}});
          const pid_t other = children.start({.handled = {SIGTERM, SIGUSR1}});
          Orphans orphans(nullptr);
          orphans.note_asked(asked, SIGTERM);
          orphans.ask();
          std::string text = children.seen(1);
          return text += children.seen_before(other, SIGUSR1);
        }) == "15 10 ");
}

// Start times are in hundredths of a second: what a rank's handler starts within the same one was not asked with it.
TEST_CASE("Orphans: a process without a handler that came into the group after it was asked is ended too") {
  CHECK(in_child([] {
          Children children;
          const pid_t leader = children.start({.handled = {SIGTERM, SIGUSR1}});
          Orphans orphans(nullptr);
          std::string ends;
          std::string seen;
          for (int i = 0; i < 5; ++i) {
            ::kill(-leader, SIGTERM);
            orphans.note_asked(leader, SIGTERM);
            const pid_t late = children.start({.group = leader});
            orphans.ask();
            ends += Children::end_of(late) + " ";
            seen += children.seen(1);
          }
          // The leader has a handler, which must not take our second signal for impatience.
          seen += children.seen_before(leader, SIGUSR1);
          return ends + "/ " + seen;
        }) == "signal 15 signal 15 signal 15 signal 15 signal 15 / 15 15 15 15 15 10 ");
}

// A program may have its handler work once, so that a second signal ends it at once.
TEST_CASE("Orphans: who was asked and has no handler any more is not asked once more") {
  CHECK(in_child([] {
          Children children;
          const pid_t child = children.start({.handled = {SIGUSR1}, .handled_once = {SIGTERM}});
          std::this_thread::sleep_for(std::chrono::milliseconds(30));  // longer than start times can tell
          Orphans orphans(nullptr);
          ::kill(-child, SIGTERM);
          orphans.note_asked(child, SIGTERM);
          std::string text = children.seen(1);
          orphans.ask();
          text += children.seen_before(child, SIGUSR1);
          return text;
        }) == "15 10 ");
}

TEST_CASE("Orphans: who is suspended goes on to end") {
  CHECK(in_child([] {
          Children children;
          const pid_t child = children.start({});
          ::kill(child, SIGSTOP);
          if (!comes_true([&] { return identify(child)->state == 'T'; })) return std::string("was not stopped");
          Orphans orphans(nullptr);
          orphans.ask();
          return Children::end_of(child);
        }) == "signal 15");
}

TEST_CASE("Orphans: those whose parents are gone are found, asked and killed") {
  CHECK(in_child([] {
          Children children;
          const Pipe number = make_pipe();
          const pid_t parent = ::fork();
          if (parent == 0) {
            const pid_t grandchild = children.start({.handled = {SIGTERM}});
            [[maybe_unused]] const ssize_t written = ::write(number.writer.get(), &grandchild, sizeof grandchild);
            while (true) ::pause();
          }
          pid_t grandchild = 0;
          if (::read(number.reader.get(), &grandchild, sizeof grandchild) != sizeof grandchild) {
            return std::string("no grandchild");
          }
          Orphans orphans(nullptr);
          orphans.ask();
          std::string text = Children::end_of(parent) + ", ";
          text += children.seen(1);
          orphans.kill();
          return text + Children::end_of(grandchild);  // ours now
        }) == "signal 15, 15 signal 9");
}

TEST_CASE("Orphans: exist as long as one is not reaped") {
  CHECK(in_child([] {
          Children children;
          Orphans orphans(nullptr);
          std::string text = orphans.exist() ? "yes " : "no ";
          const pid_t child = children.start({.ignored = {SIGTERM}});
          text += orphans.exist() ? "yes " : "no ";
          orphans.ask();
          text += orphans.exist() ? "yes " : "no ";
          orphans.kill();
          comes_true([&] { return identify(child)->state == 'Z'; });
          text += orphans.exist() ? "yes " : "no ";
          text += Children::end_of(child) + " ";
          text += orphans.exist() ? "yes" : "no";
          return text;
        }) == "no yes yes yes signal 9 no");
}

TEST_CASE("Orphans: asking and killing nobody is nothing") {
  CHECK(in_child([] {
          Orphans orphans(nullptr);
          orphans.note_asked(1 << 30, SIGTERM);
          orphans.ask();
          orphans.kill();
          return std::string(orphans.exist() ? "exists" : "none");
        }) == "none");
}

}  // namespace
}  // namespace launcher
