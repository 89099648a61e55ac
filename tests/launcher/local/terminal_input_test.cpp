#include "launcher/local/processes/terminal_input.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <optional>
#include <string>

#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/console.h"
#include "tests/launcher/in_child.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = EventLoop::Clock;

// ddprun at a terminal, where somebody types. In a process of its own, whose standard input the terminal becomes.
class Typing {
 public:
  explicit Typing(bool is_controlling) : console_(24, 80), pipe_(make_pipe(O_NONBLOCK)) {
    ::signal(SIGPIPE, SIG_IGN);  // as ddprun blocks it
    ::signal(SIGTTOU, SIG_IGN);
    ::signal(SIGHUP, SIG_IGN);  // as under nohup
    ::setsid();
    if (is_controlling && ::ioctl(console_.terminal(), TIOCSCTTY, 0) != 0) throw std::runtime_error("TIOCSCTTY");
    ::dup2(console_.terminal(), STDIN_FILENO);
    input_.emplace(loop_, std::move(pipe_.writer));
  }
  void type(const std::string& text) const { console_.type(text); }
  std::string take(std::size_t most = 1 << 16) {
    std::string text(most, '\0');
    const ssize_t count = ::read(pipe_.reader.get(), text.data(), text.size());
    is_at_end_ = count == 0;
    text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
    return text;
  }
  void run_for(Clock::duration time) {
    const auto end = Clock::now() + time;
    run_until([&] { return Clock::now() >= end; });
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto limit = Clock::now() + 20s;
    bool is_true = condition();
    while (!is_true && Clock::now() < limit) {
      loop_.call_at(Clock::now() + 1ms, [] {});
      loop_.run_once();
      is_true = condition();
    }
    return is_true;
  }
  // So many bytes of what was typed.
  std::string wait_for(std::size_t count) {
    std::string got;
    run_until([&] { return (got += take()).size() >= count || is_at_end_; });
    return got;
  }

  EventLoop loop_;
  Console console_;
  Pipe pipe_;
  bool is_at_end_ = false;
  std::optional<TerminalInput> input_;
};

TEST_CASE("TerminalInput: what is typed is handed on, byte for byte") {
  CHECK(in_child([] {
          Typing typing(true);
          typing.type("first\n");
          std::string got = typing.wait_for(6);
          typing.type("\x01\xff second");
          return got + typing.wait_for(9);
        }) == "first\n\x01\xff second");
}

TEST_CASE("TerminalInput: a terminal that does not control ddprun is read as well") {
  CHECK(in_child([] {
          Typing typing(false);
          typing.type("typed\n");
          return typing.wait_for(6);
        }) == "typed\n");
}

TEST_CASE("TerminalInput: in the background nothing is taken, and from the foreground on everything is") {
  CHECK(in_child([] {
          Typing typing(true);
          const pid_t other = ::fork();
          if (other == 0) {
            ::setpgid(0, 0);
            while (true) ::pause();
          }
          ::setpgid(other, other);
          ::tcsetpgrp(STDIN_FILENO, other);
          typing.type("for the other\n");
          typing.run_for(250ms);
          std::string text = typing.take() + "/";
          ::tcsetpgrp(STDIN_FILENO, ::getpgrp());
          text += typing.wait_for(14);
          ::kill(other, SIGKILL);
          ::waitpid(other, nullptr, 0);
          return text;
        }) == "/for the other\n");
}

TEST_CASE("TerminalInput: a rank that does not read holds up nobody, and gets all of it later") {
  CHECK(in_child([] {
          Typing typing(true);
          ::fcntl(typing.pipe_.reader.get(), F_SETPIPE_SZ, 4096);
          std::string typed;
          for (int i = 0; i < 5; ++i) {
            const std::string line = std::string(3'000, static_cast<char>('a' + i)) + "\n";
            typing.type(line);
            typed += line;
            typing.run_for(5ms);
          }
          typing.input_->resume();  // as after Ctrl-Z and fg: what waits for the pipe stays in order
          const std::string got = typing.wait_for(typed.size());
          return std::string(got == typed ? "all of it" : "something else");
        }) == "all of it");
}

TEST_CASE("TerminalInput: the rank's end of the input is the terminal's") {
  CHECK(in_child([] {
          Typing typing(true);
          typing.type("last");
          std::string text = typing.wait_for(4);
          typing.console_.hang_up();
          typing.run_until([&] {
            text += typing.take();
            return typing.is_at_end_;
          });
          typing.input_->resume();  // there is nothing any more
          return text + (typing.is_at_end_ ? ", end" : "");
        }) == "last, end");
}

TEST_CASE("TerminalInput: when nobody reads any more, the terminal is left alone") {
  CHECK(in_child([] {
          Typing typing(true);
          typing.pipe_.reader.reset();
          typing.type("one\n");
          typing.run_for(50ms);
          typing.type("two\n");
          typing.run_for(50ms);
          typing.input_->resume();
          typing.run_for(50ms);
          std::string left(100, '\0');
          ::fcntl(STDIN_FILENO, F_SETFL, O_NONBLOCK);
          const ssize_t count = ::read(STDIN_FILENO, left.data(), left.size());
          left.resize(static_cast<std::size_t>(std::max<ssize_t>(0, count)));
          return left;
        }) == "two\n");
}

}  // namespace
}  // namespace launcher
