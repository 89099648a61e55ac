#include "launcher/terminal/live_lines.h"

#include <string>
#include <vector>

#include "launcher/terminal/line_prefixer.h"
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
  CHECK(lines.shown().rows.size() <= LiveLines::kMostRows + 1);
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
