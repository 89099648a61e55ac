// What a bar writes to a file, and to a terminal: a small terminal is emulated behind a pty.
#include <pty.h>
#include <termios.h>
#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <stdexcept>
#include <thread>

#include <ddprun/monitor/progress_bar.h>

#include "base/job.h"
#include "tests/support/catch.h"
#include "tests/support/matchers.h"

namespace ddp {
namespace {

using Catch::Matchers::ContainsSubstring;
using Catch::Matchers::IsEmpty;
using Catch::Matchers::Matches;
using Catch::Matchers::MessageMatches;
using Catch::Matchers::SizeIs;
using Catch::Matchers::StartsWith;
using test::ElementsAre;

constexpr std::chrono::milliseconds kEachStep{0};
constexpr std::chrono::milliseconds kNever{3'600'000};
constexpr unsigned short kColumns = 61;

/// A stream whose content can be looked at.
class Output {
 public:
  Output() : file_(std::tmpfile()) {}
  ~Output() { std::fclose(file_); }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  std::FILE* stream() { return file_; }
  std::vector<std::string> lines() {
    std::rewind(file_);
    std::string content;
    for (int byte = std::fgetc(file_); byte != EOF; byte = std::fgetc(file_))
      content.push_back(static_cast<char>(byte));
    std::vector<std::string> lines;
    std::istringstream stream(content);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
  }

 private:
  std::FILE* file_;
};

TEST_CASE("ProgressBarInAFile: writes plain lines without any control character") {
  Output output;
  {
    ProgressBar bar(3, {.description = "train", .line_interval = kEachStep, .stream = output.stream()});
    for (int i = 0; i < 3; ++i) {
      bar.set_postfix({{"loss", 0.25 * (i + 1)}, {"phase", std::string("warm")}});
      bar.advance();
    }
  }
  const auto lines = output.lines();
  REQUIRE_THAT(lines, SizeIs(3));
  CHECK_THAT(lines[0], Matches("train:  33% 1/3 \\[00:00<.*, .*it/s, loss=0.25, phase=warm\\]"));
  CHECK_THAT(lines[2], Matches("train: 100% 3/3 \\[00:00<00:00, .*it/s, loss=0.75, phase=warm\\]"));
  for (const auto& line : lines) CHECK_THAT(line, !ContainsSubstring("\x1b"));
}

TEST_CASE("ProgressBarInAFile: writes only the end when the loop is shorter than the interval") {
  Output output;
  {
    ProgressBar epochs(2, {.line_interval = kNever, .stream = output.stream()});
    for (int epoch = 0; epoch < 2; ++epoch, epochs.advance()) {
      ProgressBar bar(epochs, 100);
      for (int i = 0; i < 100; ++i) bar.advance();
    }
  }
  CHECK_THAT(output.lines(), ElementsAre(StartsWith("100% 2/2 [")));
}

TEST_CASE("ProgressBarInAFile: tells its end once and again only when there is news") {
  Output output;
  const ProgressOptions options{.line_interval = kEachStep, .stream = output.stream()};
  {
    ProgressBar epochs(1, options);
    {
      ProgressBar bar(epochs, 2);
      bar.advance(2);
    }
    epochs.advance();
  }
  {
    ProgressBar unknown(std::nullopt, options);
    unknown.advance(5);
  }
  {
    ProgressBar late(1, options);
    late.advance();
    late.set_postfix({{"loss", 0.5}});
  }
  CHECK_THAT(output.lines(), ElementsAre(StartsWith("100% 2/2 ["), StartsWith("100% 1/1 ["), StartsWith("5it ["),
                                         StartsWith("100% 1/1 ["), ContainsSubstring(", loss=0.5]")));
}

TEST_CASE("ProgressBarInAFile: a last line before the end tells the mean rate too") {
  Output output;
  ProgressBar bar(1'000'000, {.line_interval = kEachStep, .stream = output.stream()});
  const auto start = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(60)) std::this_thread::yield();
  bar.advance();
  bar.advance(999'999);
  const auto lines = output.lines();
  REQUIRE_THAT(lines, SizeIs(2));
  double rate = 0;
  UNSCOPED_INFO(lines[1]);
  REQUIRE(std::sscanf(lines[1].c_str(), "100%% 1000000/1000000 [%*d:%*d<%*d:%*d, %lf", &rate) == 1);
  UNSCOPED_INFO("the newest rate alone would be far higher");
  CHECK(rate < 1'000'000 / 0.06);
  CHECK(rate > 1000);
}

TEST_CASE("ProgressBarInAFile: other ranks are silent") {
  Output output;
  {
    ProgressBar epochs(2, {.rank = 1, .line_interval = kEachStep, .stream = output.stream()});
    ProgressBar bar(epochs, 2);
    bar.advance();
    bar.set_postfix({{"loss", 1.0}});
    bar.print("text");
    epochs.advance();
    CHECK(epochs.done() == 1);
  }
  CHECK_THAT(output.lines(), IsEmpty());
}

struct BarGroup {
  int rank() const { return 1; }
  int size() const { return 2; }
};

TEST_CASE("ProgressBarInAFile: in a job of several ranks it must know which this is") {
  Output output;
  const ThreadJob job({.rank = 1, .size = 2});
  CHECK_THROWS_MATCHES(ProgressBar(3, {.stream = output.stream()}), std::invalid_argument,
                       MessageMatches(ContainsSubstring("all 2 ranks would show a bar. Give it the group")));
  {
    ProgressBar silent(3, BarGroup(), {.line_interval = kEachStep, .stream = output.stream()});
    ProgressBar inner(silent, 3);
    inner.advance();
    silent.advance();
  }
  CHECK_THAT(output.lines(), IsEmpty());
  ProgressBar(3, {.rank = 0, .stream = output.stream()}).advance(3);
  CHECK_THAT(output.lines(), SizeIs(1));
}

TEST_CASE("ProgressBarInAFile: steps of an earlier run count for the place but not for the rate") {
  Output output;
  {
    ProgressBar bar(1'000'000'000, {.initial = 999'999'990, .line_interval = kNever, .stream = output.stream()});
    const auto start = std::chrono::steady_clock::now();
    while (std::chrono::steady_clock::now() - start < std::chrono::milliseconds(2)) std::this_thread::yield();
    bar.advance(5);
  }
  const auto lines = output.lines();
  REQUIRE_THAT(lines, SizeIs(1));
  double rate = 0;
  UNSCOPED_INFO(lines[0]);
  REQUIRE(std::sscanf(lines[0].c_str(), "100%% 999999995/1000000000 [%*d:%*d<%*d:%*d, %lf", &rate) == 1);
  CHECK(rate < 5000);
}

/// A terminal that understands what the bars use: printable text, which wraps behind the last column, CR, LF, "erase to
/// the end of line", "erase to the end of the screen", "cursor up".
class Screen {
 public:
  Screen() {
    ::setenv("TERM", "xterm", 1);
    winsize size{.ws_row = 24, .ws_col = kColumns, .ws_xpixel = 0, .ws_ypixel = 0};
    int user = -1;
    if (::openpty(&keyboard_, &user, nullptr, nullptr, &size) != 0) throw std::runtime_error("openpty failed");
    stream_ = ::fdopen(user, "w");
  }
  ~Screen() {
    std::fclose(stream_);
    ::close(keyboard_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  std::FILE* stream() { return stream_; }

  /// The lines as they look now.
  std::vector<std::string> lines() {
    // The kernel hands bytes on in its own time: everything before this mark has come when the mark has.
    constexpr char kMark = '\0';
    std::fputc(kMark, stream_);
    std::fflush(stream_);
    char byte = ' ';
    while (::read(keyboard_, &byte, 1) == 1 && byte != kMark) take(byte);
    std::vector<std::string> lines;
    for (const Row& row : rows_) {
      lines.emplace_back();
      for (const std::string& character : row) lines.back() += character;
    }
    return lines;
  }

 private:
  using Row = std::vector<std::string>;  // of UTF-8 characters, each of which takes one column here

  void take(char byte) {
    const bool continues_a_character = (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U;
    if (!escape_.empty()) {
      escape_ += byte;
      if (byte == 'K' || byte == 'J') rows_.at(row_).resize(std::min(column_, rows_[row_].size()));
      for (size_t below = row_ + 1; byte == 'J' && below < rows_.size(); ++below) rows_[below].clear();
      if (byte == 'A') row_ -= static_cast<size_t>(std::stoi(escape_.substr(2)));
      if (byte == 'K' || byte == 'J' || byte == 'A') escape_.clear();
    } else if (byte == '\x1b') {
      escape_ = byte;
    } else if (byte == '\r') {
      column_ = 0;
    } else if (byte == '\n') {
      go_down();
    } else if (continues_a_character) {
      rows_.at(row_).at(column_ - 1) += byte;
    } else {
      if (column_ == kColumns) {
        go_down();
        column_ = 0;
      }
      Row& row = rows_.at(row_);
      if (column_ >= row.size()) row.resize(column_ + 1, " ");
      row[column_++] = byte;
    }
  }

  void go_down() {
    ++row_;
    if (row_ == rows_.size()) rows_.emplace_back();
  }

  int keyboard_ = -1;
  std::FILE* stream_ = nullptr;
  std::vector<Row> rows_{Row()};
  size_t row_ = 0;
  size_t column_ = 0;
  std::string escape_;
};

TEST_CASE("ProgressBarOnATerminal: is rewritten in place with the width of the terminal") {
  Screen screen;
  {
    ProgressBar bar(4, {.redraw_interval = kEachStep, .stream = screen.stream()});
    CHECK_THAT(screen.lines(), ElementsAre("  0%|                                 | 0/4 [00:00<?, ?it/s]"));
    bar.advance(2);
    CHECK_THAT(screen.lines(), ElementsAre(ContainsSubstring("| 2/4 [00:00<00:00, ")));
    bar.advance(2);
  }
  CHECK_THAT(screen.lines(), ElementsAre(ContainsSubstring("| 4/4 [00:00<00:00, "), ""));
}

TEST_CASE("ProgressBarOnATerminal: wide characters do not make the line wrap") {
  Screen screen;
  const ProgressBar bar(4, {.description = "训练 🚀 e\u0301", .stream = screen.stream()});
  // Two columns each for three characters, none for the accent; 60 in all, one less than the terminal has.
  CHECK_THAT(screen.lines(), ElementsAre("训练 🚀 e\u0301:   0%|                      | 0/4 [00:00<?, ?it/s]"));
}

TEST_CASE("ProgressBarOnATerminal: an inner bar stands below and is gone at its end") {
  Screen screen;
  ProgressBar epochs(2, {.description = "epochs", .redraw_interval = kEachStep, .stream = screen.stream()});
  for (int epoch = 0; epoch < 2; ++epoch, epochs.advance()) {
    ProgressBar bar(epochs, 3, {.description = "train"});
    bar.advance();
    CHECK_THAT(screen.lines(),
               ElementsAre(StartsWith("epochs: "), StartsWith("train:  33%") && ContainsSubstring("1/3")));
  }
  CHECK_THAT(screen.lines(), ElementsAre(StartsWith("epochs: 100%") && ContainsSubstring("2/2"), ""));
  epochs.close();
  epochs.close();
  INFO("closed once");
  CHECK_THAT(screen.lines(), SizeIs(2));
}

TEST_CASE("ProgressBarOnATerminal: print puts a line above the bars") {
  Screen screen;
  ProgressBar epochs(2, {.description = "epochs", .stream = screen.stream()});
  ProgressBar bar(epochs, 3, {.description = "train"});
  bar.print("saved checkpoint 1");
  CHECK_THAT(screen.lines(), ElementsAre("saved checkpoint 1", StartsWith("epochs: "), StartsWith("train: ")));
}

TEST_CASE("ProgressBarOnATerminal: a text of several lines, or wider than the terminal, leaves nothing of the bars") {
  Screen screen;
  ProgressBar epochs(2, {.description = "epochs", .stream = screen.stream()});
  ProgressBar bar(epochs, 3, {.description = "train"});
  bar.print(std::string(kColumns, 'a') + "end of a");
  bar.print("b\nc");
  CHECK_THAT(screen.lines(), ElementsAre(std::string(kColumns, 'a'), "end of a", "b", "c", StartsWith("epochs: "),
                                         StartsWith("train: ")));
}

TEST_CASE("ProgressBarOnATerminal: draws no more often than the interval") {
  Screen screen;
  ProgressBar bar(1000, {.redraw_interval = kNever, .stream = screen.stream()});
  for (int i = 0; i < 999; ++i) bar.advance();
  CHECK_THAT(screen.lines(), ElementsAre(ContainsSubstring("| 0/1000 [")));
}

}  // namespace
}  // namespace ddp
