#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "launcher/os/terminal/live_display.h"
#include "tests/launcher/screen_model.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace launcher {
namespace {

using Catch::Matchers::IsEmpty;
using ddp::test::ElementsAre;

ShownRow row(const std::string& text, std::size_t columns = 0) {
  return {text, columns == 0 ? text.size() : columns};
}

// A LiveScreen and the terminal that it paints on.
class Painted {
 public:
  Painted(std::size_t height, std::size_t columns, bool reflows = true)
      : columns_(columns), live_(reflows), terminal_(height, columns) {}
  Painted& paint(std::string_view lines, std::vector<ShownRow> rows = {}) {
    out_.clear();
    live_.paint(lines, std::move(rows), columns_, out_);
    terminal_.feed(out_);
    return *this;
  }
  Painted& leave() {
    out_.clear();
    live_.leave(out_);
    terminal_.feed(out_);
    return *this;
  }
  // Somebody else, with a line end of his own.
  Painted& write(std::string_view bytes) {
    terminal_.feed(bytes);
    return *this;
  }
  std::vector<std::string> rows() const { return terminal_.rows(); }
  const std::string& out() const { return out_; }
  LiveScreen& live() { return live_; }
  const ScreenModel& terminal() const { return terminal_; }

 private:
  std::size_t columns_;
  LiveScreen live_;
  ScreenModel terminal_;
  std::string out_;
};

TEST_CASE("LiveScreen: without rows, lines pass byte for byte") {
  Painted painted(24, 80);
  CHECK(painted.paint("one\n").out() == "one\n");
  CHECK(painted.paint("\x1b[31mtwo\x1b[m").out() == "\x1b[31mtwo\x1b[m");
  CHECK(painted.live().has_unfinished_line());
  CHECK(painted.paint(" and more\r\n").out() == " and more\r\n");
  CHECK_FALSE(painted.live().has_unfinished_line());
  CHECK(painted.paint("").out() == "");
  CHECK(painted.leave().out() == "");
}

TEST_CASE("LiveScreen: rows stay at the bottom and lines pass above") {
  Painted painted(24, 80);
  CHECK_THAT(painted.paint("", {row("10%"), row("20%")}).rows(), ElementsAre("10%", "20%"));
  CHECK_THAT(painted.paint("line\n", {row("10%"), row("20%")}).rows(), ElementsAre("line", "10%", "20%"));
  CHECK_THAT(painted.paint("", {row("11%"), row("20%")}).rows(), ElementsAre("line", "11%", "20%"));
  CHECK_THAT(painted.paint("next\nlast\n", {row("x")}).rows(), ElementsAre("line", "next", "last", "x"));
  CHECK_THAT(painted.paint("").rows(), ElementsAre("line", "next", "last"));
}

TEST_CASE("LiveScreen: nothing is written when nothing has changed") {
  Painted painted(24, 80);
  painted.paint("", {row("10%"), row("20%")});
  CHECK(painted.paint("", {row("10%"), row("20%")}).out() == "");
  CHECK_FALSE(painted.paint("", {row("10%"), row("21%")}).out().empty());
}

TEST_CASE("LiveScreen: a row that becomes shorter leaves nothing of what it was") {
  Painted painted(24, 20);
  painted.paint("", {row("a long first row"), row("a long second row")});
  CHECK_THAT(painted.paint("", {row("a"), row("b")}).rows(), ElementsAre("a", "b"));
}

TEST_CASE("LiveScreen: a row that fills the terminal keeps its last character") {
  Painted painted(24, 5);
  CHECK_THAT(painted.paint("", {row("12345"), row("abcde")}).rows(), ElementsAre("12345", "abcde"));
  CHECK_THAT(painted.paint("", {row("54321"), row("edcba")}).rows(), ElementsAre("54321", "edcba"));
  CHECK_THAT(painted.paint("x\n", {row("54321"), row("edcba")}).rows(), ElementsAre("x", "54321", "edcba"));
  CHECK_THAT(painted.leave().rows(), ElementsAre("x", "54321", "edcba"));
  const std::string wide = "\xe4\xb8\xad\xe4\xb8\xad";
  Painted two(24, 4);
  CHECK_THAT(two.paint("", {row(wide, 4), row(wide, 4)}).rows(), ElementsAre(wide, wide));
}

TEST_CASE("LiveScreen: rows below an unfinished line begin in a row of their own") {
  Painted painted(24, 80);
  CHECK_THAT(painted.paint("no newline", {row("10%")}).rows(), ElementsAre("no newline", "10%"));
  CHECK_FALSE(painted.live().has_unfinished_line());
  Painted later(24, 80);
  later.paint("no newline");
  CHECK_THAT(later.paint("", {row("10%")}).rows(), ElementsAre("no newline", "10%"));
}

TEST_CASE("LiveScreen: colours of an unfinished line do not reach the rows") {
  Painted painted(24, 80);
  painted.paint("\x1b[31mred and not ended");
  painted.paint("", {row("10%")});
  CHECK(painted.out().find("\x1b[m") < painted.out().find("10%"));
}

TEST_CASE("LiveScreen: what is typed while rows are shown is painted over") {
  Painted painted(24, 80);
  painted.paint("", {row("10%"), row("20%")});
  painted.write("^C");  // by the terminal itself, where the cursor is
  CHECK_THAT(painted.paint("", {row("11%"), row("20%")}).rows(), ElementsAre("11%", "20%"));
}

TEST_CASE("LiveScreen: leaving keeps the rows and begins a new line, once") {
  Painted painted(24, 80);
  painted.paint("", {row("10%"), row("20%")});
  CHECK_THAT(painted.leave().rows(), ElementsAre("10%", "20%"));
  CHECK(painted.terminal().cursor_row() == 2);
  CHECK(painted.terminal().cursor_column() == 0);
  CHECK(painted.leave().out() == "");
  CHECK_THAT(painted.paint("$ prompt").rows(), ElementsAre("10%", "20%", "$ prompt"));
}

TEST_CASE("LiveScreen: what somebody else wrote is never erased") {
  Painted painted(24, 80);
  painted.paint("", {row("10%"), row("20%")}).leave().write("$ fg\n");
  painted.live().forget();
  CHECK_THAT(painted.paint("", {row("11%"), row("20%")}).rows(), ElementsAre("10%", "20%", "$ fg", "11%", "20%"));
}

TEST_CASE("LiveScreen: works on a terminal of one row or one column") {
  Painted low(1, 10);
  low.paint("", {row("10%")});
  CHECK_THAT(low.paint("line\n", {row("11%")}).rows(), ElementsAre("line", "11%"));
  CHECK_THAT(low.paint("", {row("12%")}).rows(), ElementsAre("line", "12%"));
  Painted narrow(10, 1);
  narrow.paint("", {row("a"), row("b")});
  CHECK_THAT(narrow.paint("x\n", {row("c"), row("b")}).rows(), ElementsAre("x", "c", "b"));
  CHECK_THAT(narrow.paint("").rows(), ElementsAre("x"));
  Painted least(1, 1);
  least.paint("", {row("a")});
  CHECK_THAT(least.paint("x\n", {row("b")}).rows(), ElementsAre("x", "b"));
}

// The terminal has moved the ends of rows that were too long to rows of their own.
TEST_CASE("LiveScreen: a terminal that became narrower has its old rows erased, and no more") {
  LiveScreen live(true);
  std::string out;
  live.paint("", {row("0123456789"), row("abcdefghij")}, 10, out);
  ScreenModel narrow(24, 4);
  narrow.feed("above\r\n");  // what is on it now: two rows of "above", then three for each of ours
  for (const char* part : {"0123\r\n", "4567\r\n", "89\r\n", "abcd\r\n", "efgh\r\n", "ij"}) narrow.feed(part);
  narrow.feed("\r\x1b[2A");  // the cursor stays with the beginning of the last row
  out.clear();
  live.paint("", {row("0123"), row("abcd")}, 4, out);
  narrow.feed(out);
  CHECK_THAT(narrow.rows(), ElementsAre("abov", "e", "0123", "abcd"));
}

TEST_CASE("LiveScreen: where rows do not move, a narrower terminal costs no line above") {
  LiveScreen live(false);
  std::string out;
  live.paint("", {row("0123456789"), row("abcdefghij")}, 10, out);
  ScreenModel narrow(24, 4);
  narrow.feed("up\r\n0123\r\nabcd\r");
  out.clear();
  live.paint("", {row("0123"), row("abcd")}, 4, out);
  narrow.feed(out);
  CHECK_THAT(narrow.rows(), ElementsAre("up", "0123", "abcd"));
}

// Rows that come and go, lines with and without their newline, in every size of a terminal.
TEST_CASE("LiveScreen: shows all lines and then the rows, whatever is painted") {
  const std::string wide = "\xe4\xb8\xad";
  for (unsigned seed = 0; seed < 300; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const std::size_t height = 2 + random() % 8;
    const std::size_t columns = 2 + random() % 10;
    Painted painted(height, columns);
    std::vector<std::string> lines;
    for (int step = 0; step < 60; ++step) {
      std::string text;
      for (std::size_t i = random() % 3; i > 0; --i) {
        lines.push_back(std::string(random() % (columns - 1) + 1, static_cast<char>('a' + random() % 26)));
        text += lines.back() + "\n";
      }
      std::vector<ShownRow> rows;
      std::vector<std::string> expected = lines;
      for (std::size_t i = random() % height; i > 0; --i) {
        std::string shown(random() % columns + 1, static_cast<char>('0' + random() % 10));
        std::size_t taken = shown.size();
        if (random() % 3 == 0) {
          shown = wide;
          taken = 2;
        }
        rows.push_back(row(shown, taken));
        expected.push_back(shown);
      }
      painted.paint(text, rows);
      REQUIRE(painted.rows() == expected);
      REQUIRE(painted.terminal().cursor_column() == 0);
    }
  }
}

}  // namespace
}  // namespace launcher
