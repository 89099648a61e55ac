#include "launcher/os/terminal/live_lines.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "launcher/os/terminal/line_prefixer.h"
#include "tests/launcher/screen_model.h"
#include "tests/support/catch.h"

namespace launcher {
namespace {

using Rows = std::vector<std::string>;

struct Shown {
  std::string finished{};
  Rows rows{};
  bool operator==(const Shown&) const = default;
};

class LiveLinesOf {
 public:
  explicit LiveLinesOf(const std::string& prefix = ">") : lines_(widths_) { lines_.set_prefix(prefix); }
  LiveLinesOf& feed(std::string_view bytes, std::size_t piece = static_cast<std::size_t>(-1)) {
    for (std::size_t i = 0; i < bytes.size(); i += std::min(piece, bytes.size() - i)) {
      lines_.feed(bytes.substr(i, piece), finished_);
    }
    return *this;
  }
  LiveLinesOf& settle() {
    if (lines_.is_waiting()) lines_.settle(finished_);
    return *this;
  }
  LiveLinesOf& finish() {
    lines_.finish(finished_);
    return *this;
  }
  Shown shown(std::size_t columns = 80) const {
    Shown shown{finished_};
    for (const ShownRow& row : lines_.rows(columns)) shown.rows.push_back(row.text);
    return shown;
  }
  bool is_waiting() const { return lines_.is_waiting(); }

 private:
  CharacterWidth widths_;
  LiveLines lines_;
  std::string finished_;
};

TEST_CASE("LiveLines: plain lines pass byte for byte") {
  std::string bytes("a\tb\0c\x80\xff \x1b[31mred\x1b[m \x1b\x1c\r\n", 24);
  bytes += "\n\r\n";
  const std::size_t end = bytes.find('\n') + 1;
  CHECK(LiveLinesOf().feed(bytes).shown() == Shown{">" + bytes.substr(0, end) + ">\n>\r\n"});
  CHECK(LiveLinesOf().feed("no end").shown() == Shown{});
  CHECK(LiveLinesOf().feed("no end").finish().shown() == Shown{">no end"});
}

TEST_CASE("LiveLines: a line that is redrawn is a row until it is finished") {
  LiveLinesOf lines;
  CHECK(lines.feed("\r10%").shown() == Shown{"", {">10%"}});
  CHECK(lines.feed("\r 5%\x1b[K").shown() == Shown{"", {"> 5%"}});
  CHECK(lines.feed("\rdone\n").settle().shown() == Shown{">done\n"});
  CHECK(lines.feed("next\n").shown() == Shown{">done\n>next\n"});
}

TEST_CASE("LiveLines: a return at the end shows the row too") {
  CHECK(LiveLinesOf().feed("10%\r20%\r").shown() == Shown{"", {">20%"}});
}

TEST_CASE("LiveLines: what is finished and shown does not depend on how the bytes come") {
  const std::string bytes =
      "one\n\rbar 1\x1b[31m\xe6\x95\xb0\x1b[0m\n\rinner\x1b[K\x1b[A\r\x1b[Knew\r\nplain\r\n\x1b]0;t\x07x\n\rlast "
      "\xc3\xa4";
  const Shown whole = LiveLinesOf().feed(bytes).settle().shown();
  CHECK(whole.rows.back() == ">last \xc3\xa4");
  for (std::size_t piece = 1; piece < bytes.size(); ++piece) {
    CAPTURE(piece);
    CHECK(LiveLinesOf().feed(bytes, piece).settle().shown().rows == whole.rows);
  }
}

TEST_CASE("LiveLines: rows above wait for the rank to come back") {
  LiveLinesOf lines;
  lines.feed("\router\n");
  CHECK(lines.is_waiting());
  lines.feed("\rinner\x1b[A");
  CHECK_FALSE(lines.is_waiting());
  CHECK(lines.settle().shown() == Shown{"", {">outer", ">inner"}});
  CHECK(lines.feed("\rouTER\x1b[1B\rinNER").shown() == Shown{"", {">ouTER", ">inNER"}});
  CHECK(lines.finish().shown() == Shown{">ouTER\n>inNER\n"});
}

TEST_CASE("LiveLines: a rank that comes back later keeps its rows from then on") {
  LiveLinesOf lines;
  lines.feed("\ra\nb").settle();
  CHECK(lines.shown() == Shown{">a\n", {">b"}});
  lines.feed("\r\x1b[1A\x1b[2Ka\nb").settle();
  CHECK(lines.shown() == Shown{">a\n", {">a", ">b"}});
  lines.feed("\r\x1b[1A\x1b[2Ka2\nb").settle();
  CHECK(lines.shown() == Shown{">a\n", {">a2", ">b"}});
  // Until it writes lines as others do.
  for (int i = 0; i < 20; ++i) lines.feed("\n");
  CHECK(lines.settle().shown().rows == Rows{});
}

TEST_CASE("LiveLines: rows are kept however the rank goes up to them") {
  for (const std::string up : {"\x1b[3A", "\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K", "\x1b[2A\x1b[F"}) {
    LiveLinesOf lines;
    lines.feed("\ra0\nb\nc\nd").settle();  // nobody knows yet
    for (const std::string number : {"1", "2", "3"}) {
      CAPTURE(up, number);
      lines.feed("\r" + up + "a" + number + "\nb\nc\nd").settle();
      CHECK(lines.shown() == Shown{">a0\n>b\n>c\n", {">a" + number, ">b", ">c", ">d"}});
    }
  }
}

TEST_CASE("LiveLines: a long line comes in pieces and whole") {
  std::string line;
  for (int i = 0; i < 10000; ++i) line += std::to_string(i % 10);
  std::string text = LiveLinesOf("").feed("\r" + line + "\n").settle().shown().finished;
  const std::string mark(LinePrefixer::kContinues);
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) text.erase(at, mark.size());
  CHECK(text == line + "\n");
  const std::string much(100000, 'x');
  CHECK(LiveLinesOf("").feed(much).finish().shown().finished.size() == much.size() + mark.size());
}

TEST_CASE("LiveLines: nothing grows without bound") {
  LiveLinesOf lines;
  for (int i = 0; i < 1000; ++i) lines.feed("\x1b[A\r" + std::string(500, 'x') + "\n\n\x1b[9999B\x1b[9999C\x1b[m");
  CHECK(lines.shown().rows.size() <= LiveLines::kMaxRows + 1);
  lines.feed("\x1b]" + std::string(100000, 'y') + "\rend");
  CHECK(lines.shown(10).rows.back().size() <= 10U);
}

TEST_CASE("LiveLines: rows are cut to the width and keep their colours") {
  CHECK(LiveLinesOf("[0] ").feed("\r\x1b[31mabcdef").shown(7).rows == Rows{"[0] \x1b[31mabc\x1b[m"});
  CHECK(LiveLinesOf("[0] ").feed("\r\xe6\x95\xb0\xe6\x95\xb0").shown(7).rows == Rows{"[0] \xe6\x95\xb0"});
  CHECK(LiveLinesOf("\x1b[32m[0]\x1b[m ").feed("\rx").shown(3).rows == Rows{"\x1b[32m[0]\x1b[m"});
  CHECK(LiveLinesOf("").feed("\ra\xff").shown().rows == Rows{"a\xef\xbf\xbd"});
  CHECK(LiveLinesOf("").feed("\re\xcc\x81x").shown(1).rows == Rows{"e\xcc\x81"});  // a combining accent
}

// What a terminal shows of these bytes that is as large as need be.
std::vector<std::string> picture_of(const std::string& bytes) {
  ScreenModel screen(500, LiveLines::kMaxColumns);
  screen.feed(bytes);
  return screen.rows();
}

// A stream in pieces of random sizes, until its end.
std::string finished_of(const std::string& bytes, std::mt19937& random, bool settles) {
  LiveLinesOf lines("");
  for (std::size_t i = 0; i < bytes.size();) {
    const std::size_t piece = random() % 7 + 1;
    lines.feed(std::string_view(bytes).substr(i, piece));
    if (settles && random() % 5 == 0) lines.settle();
    i += piece;
  }
  return lines.finish().shown().finished;
}

TEST_CASE("LiveLines: bars in one row end as a terminal would show them, however the bytes come") {
  const std::vector<std::string> parts = {"a",    "bcd",    "\xe4\xb8\xad", " ",        "\r",     "\r",  "\n",
                                          "\r\n", "\x1b[K", "\x1b[2K",      "\x1b[31m", "\x1b[m", "10%", "\xc3\xa4"};
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string bytes;
    for (int i = 0; i < 60; ++i) bytes += parts[random() % parts.size()];
    CAPTURE(bytes);
    REQUIRE(picture_of(finished_of(bytes, random, true)) == picture_of(bytes));
  }
}

TEST_CASE("LiveLines: bars in several rows end as a terminal would show them") {
  const std::vector<std::string> parts = {"a",       "bcd",      "\xe4\xb8\xad", "\r", "\x1b[K",
                                          "\x1b[2K", "\x1b[32m", "\x1b[m",       "10%"};
  for (unsigned seed = 0; seed < 400; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::string bytes = "\r0%";
    std::size_t row = 0;
    std::size_t last = 0;
    for (int i = 0; i < 80; ++i) {
      const unsigned kind = random() % 8;
      if (kind == 0 && row > 0) {
        const std::size_t up = random() % row + 1;
        bytes += "\x1b[" + std::to_string(up) + "A";
        row -= up;
      } else if (kind == 1 && row < last) {
        bytes += "\x1b[B";
        ++row;
      } else if (kind == 2 && row < 6) {
        bytes += "\n";
        last = std::max(last, ++row);
      } else {
        bytes += parts[random() % parts.size()];
      }
    }
    CAPTURE(bytes);
    REQUIRE(picture_of(finished_of(bytes, random, false)) == picture_of(bytes));
  }
}

TEST_CASE("LiveLines: backspaces, tabs and columns are gone to as a terminal goes") {
  const auto shown = [](const std::string& bytes) { return LiveLinesOf("").feed(bytes).finish().shown().finished; };
  CHECK(shown("\rabc\b\bX\n") == "aXc\n");
  CHECK(shown("\r\b\b\bX\n") == "X\n");
  CHECK(shown("\ra\tb\n") == "a       b\n");
  CHECK(shown("\r\x1b[5GX\x1b[1GY\n") == "Y   X\n");
  CHECK(shown("\rabc\x1b[2DX\x1b[99DY\n") == "YXc\n");
  CHECK(shown("\ra\x1b[3CX\n") == "a   X\n");
  CHECK(shown("\rabc\x1b[1D\x1b[1KX\n") == "  X\n");
  CHECK(shown("\rabc\x1b[0GX\x1b[0KY\n") == "XY\n");  // 0 is 1 for columns, and the end of the row for erasing
}

TEST_CASE("LiveLines: numbers beyond all measure stay within the rank's own rows") {
  for (const std::string number : {"99999", "4294967296", "18446744073709551615", "99999999999999999999999"}) {
    CAPTURE(number);
    LiveLinesOf lines("");
    for (const char final : std::string("ABCDEFGJKm")) {
      lines.feed("\rrow \n\rnext\x1b[" + number + final + "x\x1b[;" + number + final + "\x1b[" + number + ";1" + final);
    }
    CHECK(lines.shown().rows.size() <= LiveLines::kMaxRows + 1);
    lines.finish();
    CHECK(lines.shown().finished.size() < 100 * LiveLines::kMaxColumns);
  }
}

TEST_CASE("LiveLines: private sequences, titles and modes change nothing") {
  for (const std::string sequence : {"\x1b[?25l", "\x1b[?1049h", "\x1b[>c", "\x1b]0;title\x07", "\x1b(0", "\x1b[6n",
                                     "\x1b[5;5H", "\x1bP1$r\x1b\\", "\x1b[!p"}) {
    CAPTURE(sequence);
    CHECK(LiveLinesOf().feed("\r10" + sequence + "%").shown() == Shown{"", {">10%"}});
  }
}

TEST_CASE("LiveLines: after its end it begins anew") {
  LiveLinesOf lines;
  lines.feed("\rbar\nbelow\x1b[A").finish();
  CHECK(lines.shown().rows == Rows{});
  CHECK_FALSE(lines.is_waiting());
  const std::string before = lines.shown().finished;
  CHECK(lines.feed("plain\n").shown().finished == before + ">plain\n");
}

TEST_CASE("RedrawsItself: is what goes back or up") {
  for (const char* line : {"a\rb\n", "\r", "a\x1b[K\n", "\x1b[2Jx", "\x1b]0;title\x07", "\x1b(B\x1b(0", "\x1b[?25l"}) {
    CAPTURE(line);
    CHECK(redraws_itself(line));
  }
  for (const char* line : {"", "a\n", "a\r\n", "a\r\r\n", "\x1b[31mred\x1b[0m\n", "\x1b", "\x1b[3", "\x1b\x1c\n"}) {
    CAPTURE(line);
    CHECK_FALSE(redraws_itself(line));
  }
}

}  // namespace
}  // namespace launcher
