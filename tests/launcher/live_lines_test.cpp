#include "launcher/terminal/live_lines.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "launcher/terminal/line_prefixer.h"

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

TEST(LiveLines, PlainLinesPassByteForByte) {
  std::string bytes("a\tb\0c\x80\xff \x1b[31mred\x1b[m \x1b\x1c\r\n", 24);
  bytes += "\n\r\n";
  const std::size_t end = bytes.find('\n') + 1;
  EXPECT_EQ(LiveLinesOf().feed(bytes).shown(), (Shown{">" + bytes.substr(0, end) + ">\n>\r\n"}));
  EXPECT_EQ(LiveLinesOf().feed("no end").shown(), Shown{});
  EXPECT_EQ(LiveLinesOf().feed("no end").finish().shown(), Shown{">no end"});
}

TEST(LiveLines, ALineThatIsRedrawnIsARowUntilItIsFinished) {
  LiveLinesOf lines;
  EXPECT_EQ(lines.feed("\r10%").shown(), (Shown{"", {">10%"}}));
  EXPECT_EQ(lines.feed("\r 5%\x1b[K").shown(), (Shown{"", {"> 5%"}}));
  EXPECT_EQ(lines.feed("\rdone\n").settle().shown(), (Shown{">done\n"}));
  EXPECT_EQ(lines.feed("next\n").shown(), (Shown{">done\n>next\n"}));
}

TEST(LiveLines, AReturnAtTheEndShowsTheRowToo) {
  EXPECT_EQ(LiveLinesOf().feed("10%\r20%\r").shown(), (Shown{"", {">20%"}}));
}

TEST(LiveLines, WhatIsFinishedAndShownDoesNotDependOnHowTheBytesCome) {
  const std::string bytes =
      "one\n\rbar 1\x1b[31m\xe6\x95\xb0\x1b[0m\n\rinner\x1b[K\x1b[A\r\x1b[Knew\r\nplain\r\n\x1b]0;t\x07x\n\rlast "
      "\xc3\xa4";
  const Shown whole = LiveLinesOf().feed(bytes).settle().shown();
  EXPECT_EQ(whole.rows.back(), ">last \xc3\xa4");
  for (std::size_t piece = 1; piece < bytes.size(); ++piece) {
    EXPECT_EQ(LiveLinesOf().feed(bytes, piece).settle().shown().rows, whole.rows) << piece;
  }
}

TEST(LiveLines, RowsAboveWaitForTheRankToComeBack) {
  LiveLinesOf lines;
  lines.feed("\router\n");
  EXPECT_TRUE(lines.is_waiting());
  lines.feed("\rinner\x1b[A");
  EXPECT_FALSE(lines.is_waiting());
  EXPECT_EQ(lines.settle().shown(), (Shown{"", {">outer", ">inner"}}));
  EXPECT_EQ(lines.feed("\rouTER\x1b[1B\rinNER").shown(), (Shown{"", {">ouTER", ">inNER"}}));
  EXPECT_EQ(lines.finish().shown(), (Shown{">ouTER\n>inNER\n"}));
}

TEST(LiveLines, ARankThatComesBackLaterKeepsItsRowsFromThenOn) {
  LiveLinesOf lines;
  lines.feed("\ra\nb").settle();
  EXPECT_EQ(lines.shown(), (Shown{">a\n", {">b"}}));
  lines.feed("\r\x1b[1A\x1b[2Ka\nb").settle();
  EXPECT_EQ(lines.shown(), (Shown{">a\n", {">a", ">b"}}));
  lines.feed("\r\x1b[1A\x1b[2Ka2\nb").settle();
  EXPECT_EQ(lines.shown(), (Shown{">a\n", {">a2", ">b"}}));
  // Until it writes lines as others do.
  for (int i = 0; i < 20; ++i) lines.feed("\n");
  EXPECT_EQ(lines.settle().shown().rows, Rows{});
}

TEST(LiveLines, RowsAreKeptHoweverTheRankGoesUpToThem) {
  for (const std::string up : {"\x1b[3A", "\x1b[1A\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K", "\x1b[2A\x1b[F"}) {
    LiveLinesOf lines;
    lines.feed("\ra0\nb\nc\nd").settle();  // nobody knows yet
    for (const std::string number : {"1", "2", "3"}) {
      lines.feed("\r" + up + "a" + number + "\nb\nc\nd").settle();
      EXPECT_EQ(lines.shown(), (Shown{">a0\n>b\n>c\n", {">a" + number, ">b", ">c", ">d"}})) << number;
    }
  }
}

TEST(LiveLines, ALongLineComesInPiecesAndWhole) {
  std::string line;
  for (int i = 0; i < 10000; ++i) line += std::to_string(i % 10);
  std::string text = LiveLinesOf("").feed("\r" + line + "\n").settle().shown().finished;
  const std::string mark(LinePrefixer::kContinues);
  for (std::size_t at = text.find(mark); at != std::string::npos; at = text.find(mark)) text.erase(at, mark.size());
  EXPECT_EQ(text, line + "\n");
  const std::string much(100000, 'x');
  EXPECT_EQ(LiveLinesOf("").feed(much).finish().shown().finished.size(), much.size() + mark.size());
}

TEST(LiveLines, NothingGrowsWithoutBound) {
  LiveLinesOf lines;
  for (int i = 0; i < 1000; ++i) lines.feed("\x1b[A\r" + std::string(500, 'x') + "\n\n\x1b[9999B\x1b[9999C\x1b[m");
  EXPECT_LE(lines.shown().rows.size(), LiveLines::kMostRows + 1);
  lines.feed("\x1b]" + std::string(100000, 'y') + "\rend");
  EXPECT_LE(lines.shown(10).rows.back().size(), 10U);
}

TEST(LiveLines, RowsAreCutToTheWidthAndKeepTheirColours) {
  EXPECT_EQ(LiveLinesOf("[0] ").feed("\r\x1b[31mabcdef").shown(7).rows, Rows{"[0] \x1b[31mabc\x1b[m"});
  EXPECT_EQ(LiveLinesOf("[0] ").feed("\r\xe6\x95\xb0\xe6\x95\xb0").shown(7).rows, Rows{"[0] \xe6\x95\xb0"});
  EXPECT_EQ(LiveLinesOf("\x1b[32m[0]\x1b[m ").feed("\rx").shown(3).rows, Rows{"\x1b[32m[0]\x1b[m"});
  EXPECT_EQ(LiveLinesOf("").feed("\ra\xff").shown().rows, Rows{"a\xef\xbf\xbd"});
  EXPECT_EQ(LiveLinesOf("").feed("\re\xcc\x81x").shown(1).rows, Rows{"e\xcc\x81"});  // a combining accent
}

TEST(RedrawsItself, IsWhatGoesBackOrUp) {
  for (const char* line : {"a\rb\n", "\r", "a\x1b[K\n", "\x1b[2Jx", "\x1b]0;title\x07", "\x1b(B\x1b(0", "\x1b[?25l"}) {
    EXPECT_TRUE(redraws_itself(line)) << line;
  }
  for (const char* line : {"", "a\n", "a\r\n", "a\r\r\n", "\x1b[31mred\x1b[0m\n", "\x1b", "\x1b[3", "\x1b\x1c\n"}) {
    EXPECT_FALSE(redraws_itself(line)) << line;
  }
}

}  // namespace
}  // namespace launcher
