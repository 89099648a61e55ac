#include "launcher/os/terminal/live_display.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "launcher/os/system/unique_fd.h"
#include "tests/launcher/console.h"
#include "tests/launcher/screen_model.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Clock = EventLoop::Clock;
using ddp::test::ElementsAre;
using Rows = std::vector<std::string>;

// A display of rows that the test chooses, and what a person in front of it would see.
class LiveDisplayTest {
 protected:
  LiveDisplayTest() { ::setenv("TERM", "xterm", 1); }

  void open(unsigned short height = 10, unsigned short columns = 40) {
    console_.emplace(height, columns);
    screen_.emplace(height > 0 ? height : 24, columns > 0 ? columns : 80);
    writer_.emplace(loop_, console_->terminal(), [] {});
    display_.emplace(loop_, console_->terminal(), ::getpgrp(), *writer_, [this](std::size_t most) {
      asked_columns_ = most;
      std::vector<ShownRow> rows;
      for (const std::string& text : rows_) rows.push_back({text.substr(0, most), std::min(text.size(), most)});
      return rows;
    });
  }
  void show(Rows rows) {
    rows_ = std::move(rows);
    display_->rows_changed();
  }
  Rows seen() {
    screen_->feed(console_->take());
    return screen_->rows();
  }
  bool run_until(const std::function<bool()>& condition) {
    const auto limit = Clock::now() + 20s;
    while (!condition() && Clock::now() < limit) {
      loop_.call_at(Clock::now() + 1ms, [] {});
      loop_.run_once();
    }
    return condition();
  }
  bool sees(const Rows& rows) {
    return run_until([&] { return seen() == rows; });
  }
  void run_for(Clock::duration time) {
    const auto end = Clock::now() + time;
    run_until([&] { return Clock::now() >= end; });
  }

  EventLoop loop_;
  std::optional<Console> console_;
  std::optional<ScreenModel> screen_;
  std::optional<StreamWriter> writer_;
  Rows rows_;
  std::size_t asked_columns_ = 0;
  std::optional<LiveDisplay> display_;
};

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: is possible on a terminal that can move its cursor only") {
  open();
  const Pipe pipe = make_pipe();
  CHECK(LiveDisplay::is_possible(console_->terminal()));
  CHECK_FALSE(LiveDisplay::is_possible(pipe.writer.get()));
  CHECK_FALSE(LiveDisplay::is_possible(-1));
  ::setenv("TERM", "dumb", 1);
  CHECK_FALSE(LiveDisplay::is_possible(console_->terminal()));
  ::unsetenv("TERM");
  CHECK(LiveDisplay::is_possible(console_->terminal()));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: lines are printed at once, and rows stay below them") {
  open();
  show({"10%"});
  REQUIRE(sees({"10%"}));
  display_->print(1, "line\n");
  CHECK_THAT(seen(), ElementsAre("line", "10%"));
  show({});
  CHECK(sees({"line"}));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: nothing to print writes nothing") {
  open();
  display_->print(1, "");
  CHECK(console_->take() == "");
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: who takes over in the middle of a line begins a new one") {
  open();
  display_->print(1, "half");
  display_->print(1, " and half");
  display_->print(2, "other\n");
  display_->print(1, "whole\n");
  CHECK_THAT(seen(), ElementsAre("half and half", "other", "whole"));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: paints changed rows 25 times a second at most") {
  open();
  int paints = 0;
  const auto begin = Clock::now();
  for (int i = 0; Clock::now() < begin + 400ms; ++i) {
    show({std::to_string(i)});
    loop_.call_at(Clock::now(), [] {});
    loop_.run_once();
    if (!console_->take().empty()) ++paints;
  }
  const auto most = (Clock::now() - begin) / 40ms + 2;
  CHECK(paints <= most);
  CHECK(paints > 0);
}

TEST_CASE_METHOD(LiveDisplayTest,
                 "LiveDisplay: a terminal that does not say how large it is has 80 columns and 24 rows") {
  open(0, 0);
  show(Rows(30, "row"));
  REQUIRE(run_until([&] { return seen().size() >= 23; }));
  CHECK(asked_columns_ == 80);
  CHECK(seen().size() == 23);
  CHECK(seen().back() == "... and 8 more rows");
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: more rows than fit are counted, with one row left for lines") {
  open(4, 40);
  show({"a", "b", "c"});
  REQUIRE(sees({"a", "b", "c"}));
  show({"a", "b", "c", "d"});
  CHECK(sees({"a", "b", "... and 2 more rows"}));
  display_->print(1, "line\n");
  CHECK_THAT(seen(), ElementsAre("line", "a", "b", "... and 2 more rows"));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: the smallest terminals show one row, and lose no line") {
  open(1, 5);
  show({"first", "second"});
  CHECK(sees({"... a"}));
  display_->print(1, "line\n");
  CHECK_THAT(seen(), ElementsAre("line", "... a"));
  show({});
  CHECK(sees({"line"}));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: one row and one column are enough") {
  open(1, 1);
  show({"a", "b"});
  CHECK(sees({"."}));
  show({"x"});
  CHECK(sees({"x"}));
  display_->print(1, "y\n");
  CHECK_THAT(seen(), ElementsAre("y", "x"));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: rows are cut anew when the terminal has another size") {
  open(10, 40);
  show({"0123456789"});
  REQUIRE(sees({"0123456789"}));
  console_->resize(10, 60);
  display_->rows_changed();
  REQUIRE(run_until([&] { return asked_columns_ == 60; }));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: while suspended rows stay as they were and only lines pass") {
  open();
  show({"10%"});
  REQUIRE(sees({"10%"}));
  rows_ = {"11%"};
  display_->suspend();
  CHECK_THAT(seen(), ElementsAre("11%"));  // the last state
  CHECK(screen_->cursor_row() == 1);
  CHECK(screen_->cursor_column() == 0);
  display_->suspend();
  show({"12%"});
  run_for(100ms);
  display_->print(1, "line\n");
  CHECK_THAT(seen(), ElementsAre("11%", "line"));
  display_->resume();
  CHECK(sees({"11%", "line", "12%"}));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: going on without having been suspended changes nothing") {
  open();
  show({"10%"});
  REQUIRE(sees({"10%"}));
  display_->resume();
  show({"11%"});
  CHECK(sees({"11%"}));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: leaving shows no change any more and begins a new line") {
  open();
  show({"10%", "20%"});
  REQUIRE(sees({"10%", "20%"}));
  display_->leave();
  seen();
  CHECK(screen_->cursor_row() == 2);
  display_->leave();
  display_.reset();
  run_for(60ms);
  CHECK_THAT(seen(), ElementsAre("10%", "20%"));
  CHECK(screen_->cursor_row() == 2);
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: what has changed last is seen after leaving at once") {
  open();
  show({"10%"});
  REQUIRE(sees({"10%"}));
  show({"100%"});  // soon
  display_->leave();
  CHECK_THAT(seen(), ElementsAre("100%"));
}

TEST_CASE_METHOD(LiveDisplayTest, "LiveDisplay: a display that is gone is not called by its timer") {
  open();
  show({"10%"});
  display_.reset();
  run_for(60ms);
  CHECK(console_->take() == "");
}

TEST_CASE_METHOD(LiveDisplayTest,
                 "LiveDisplay: nothing piles up for a slow terminal, which sees the last state in the end") {
  open();
  show({"row 0"});
  REQUIRE(sees({"row 0"}));
  std::string lines;
  for (int i = 0; i < 5'000; ++i) lines += "line\n";
  display_->print(1, lines);
  REQUIRE_FALSE(writer_->is_empty());
  for (int i = 1; i <= 200; ++i) {
    show({"row " + std::to_string(i)});
    run_for(1ms);
  }
  std::string all;
  REQUIRE(run_until([&] {
    all += console_->take(4096);
    return writer_->is_empty() && all.find("row 200") != std::string::npos;
  }));
  CHECK(all.size() < lines.size() + 4'096);
}

// In a session of its own, whose terminal this is. 0: all was well; else which step was not.
int run_in_background(const Console& console) {
  ::setsid();
  if (::ioctl(console.terminal(), TIOCSCTTY, 0) != 0) return 1;
  if (::tcgetpgrp(console.terminal()) != ::getpgrp()) return 2;
  EventLoop loop;
  StreamWriter writer(loop, console.terminal(), [] {});
  const pid_t behind = ::fork();  // a group that is not in front
  if (behind == 0) {
    ::pause();
    ::_exit(0);
  }
  ::setpgid(behind, behind);
  LiveDisplay display(loop, console.terminal(), behind, writer, [](std::size_t) {
    return std::vector<ShownRow>{{"row", 3}};
  });
  display.rows_changed();
  loop.run_once();
  if (!console.take().empty()) return 3;
  display.print(1, "line\n");
  if (console.take() != "line\n") return 4;
  display.suspend();
  display.resume();
  loop.run_once();
  if (!console.take().empty()) return 5;
  ::sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);  // SIGTTOU
  if (::tcsetpgrp(console.terminal(), behind) != 0) return 6;
  display.rows_changed();
  loop.run_once();
  const bool is_shown = console.take().find("row") != std::string::npos;
  ::kill(behind, SIGKILL);
  ::waitpid(behind, nullptr, 0);
  return is_shown ? 0 : 7;
}

TEST_CASE("LiveDisplay: in the background it prints lines only, as the terminal is somebody else's") {
  const Console console(10, 40);
  const pid_t child = ::fork();
  if (child == 0) ::_exit(run_in_background(console));
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace launcher
