#include "launcher/os/terminal/terminal_row.h"

#include <array>
#include <random>
#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

constexpr const char* kWide = "\xe4\xb8\xad";         // U+4E2D, two columns
constexpr const char* kAccent = "\xcc\x81";           // U+0301, joins the character before
constexpr const char* kReplacement = "\xef\xbf\xbd";  // U+FFFD

const CharacterWidth& widths() {
  static const CharacterWidth kWidths;
  return kWidths;
}
TextStyle style(const std::string& parameters) {
  return with_parameters(nullptr, parameters);
}
TerminalRow row_of(const std::string& text) {
  return row_of(text, widths());
}

TEST_CASE("TerminalRow: an empty one shows nothing") {
  const TerminalRow empty;
  CHECK(empty.text() == "");
  CHECK(empty.columns() == 0);
  CHECK(empty.is_blank());
  CHECK(row_of("   ").is_blank());
  CHECK(row_of("   ").written_columns() == 3);
}

TEST_CASE("TerminalRow: a character far to the right has blanks before it") {
  TerminalRow text;
  text.put(4, "x", 1, nullptr);
  CHECK(text.text() == "    x");
  CHECK(text.columns() == 5);
}

TEST_CASE("TerminalRow: half of a wide character is never shown") {
  TerminalRow text = row_of(std::string(kWide) + kWide);
  CHECK(text.columns() == 4);
  CHECK(text.text(3) == kWide);
  CHECK(text.text(1) == "");
  text.put(1, "x", 1, nullptr);  // over the second half of the first
  CHECK(text.text() == std::string(" x") + kWide);
  text.put(2, "y", 1, nullptr);  // over the first half of the second
  CHECK(text.text() == " xy");
  TerminalRow between = row_of(std::string(kWide) + kWide);
  between.put(1, kWide, 2, nullptr);
  CHECK(between.text() == std::string(" ") + kWide);
  TerminalRow erased = row_of(std::string("a") + kWide + "b");
  erased.erase(2, 3);
  CHECK(erased.text() == "a  b");
}

TEST_CASE("TerminalRow: a joining character belongs to the one before, with an end to it") {
  TerminalRow text = row_of(std::string("e") + kAccent);
  CHECK(text.text() == std::string("e") + kAccent);
  CHECK(text.columns() == 1);
  TerminalRow wide = row_of(std::string(kWide) + kAccent + "x");
  CHECK(wide.text() == std::string(kWide) + kAccent + "x");
  TerminalRow first;
  first.put(0, kAccent, 0, nullptr);  // there is none before
  first.put(5, kAccent, 0, nullptr);
  CHECK(first.text() == "");
  for (int i = 0; i < 1'000; ++i) text.put(1, kAccent, 0, nullptr);
  CHECK(text.text().size() <= 64);
}

TEST_CASE("TerminalRow: what is no character, or begins sequences, is shown as such") {
  CHECK(row_of("a\xff"
               "b")
            .text() == std::string("a") + kReplacement + "b");
  CHECK(row_of("a\xc2\x9b"
               "b")
            .text() == std::string("a") + kReplacement + "b");
  CHECK(row_of("\xe4\xb8").text() == "");  // not whole yet
}

TEST_CASE("TerminalRow: colours are set where they change and end with the row") {
  CHECK(row_of("a\x1b[31mb\x1b[0mc").text() == "a\x1b[31mb\x1b[mc");
  CHECK(row_of("\x1b[31mab").text() == "\x1b[31mab\x1b[m");
  CHECK(row_of("\x1b[31ma\x1b[1mb").text() == "\x1b[31ma\x1b[m\x1b[31m\x1b[1mb\x1b[m");
  CHECK(row_of("\x1b[31mab").text(1) == "\x1b[31ma\x1b[m");
  CHECK(row_of("\x1b[41m  ").columns() == 2);  // a coloured blank is seen
}

TEST_CASE("TerminalRow: erasing the end shortens, erasing the middle leaves blanks") {
  TerminalRow text = row_of("abcdef");
  text.erase(2, 4);
  CHECK(text.text() == "ab  ef");
  text.erase(4, 1'000);
  CHECK(text.text() == "ab");
  CHECK(text.columns() == 2);
  CHECK(text.written_columns() == 4);
  text.erase(3, 2);
  text.erase(1'000, 2'000);
  CHECK(text.written_columns() == 4);
  text.clear();
  CHECK(text.written_columns() == 0);
}

TEST_CASE("TerminalRow: behind another one it begins where that was written to") {
  CHECK(row_of("text").behind(row_of("[0] ")).text() == "[0] text");
  CHECK(row_of("").behind(row_of("[0] ")).columns() == 3);
}

TEST_CASE("WithParameters: zero ends all, and what only adds up is kept short") {
  CHECK(style("0") == nullptr);
  CHECK(style("") == nullptr);
  CHECK(style("0;0") == nullptr);
  CHECK(*style("1;31") == "\x1b[1;31m");
  CHECK(*with_parameters(style("31"), "1") == "\x1b[31m\x1b[1m");
  CHECK(*with_parameters(style("31"), "0;1") == "\x1b[0;1m");
  CHECK(with_parameters(style("31"), "0") == nullptr);
  TextStyle many;
  for (int i = 0; i < 1'000; ++i) many = with_parameters(many, "38;5;" + std::to_string(i % 256));
  CHECK(many->size() < 256);
}

// Columns as a list of what is to be seen in each; "" is the second half of a wide character.
class Model {
 public:
  void put(std::size_t column, const std::string& character, std::size_t width) {
    grow(column + width);
    for (std::size_t i = 0; i < width; ++i) blank(column + i);
    cells_[column] = character;
    if (width == 2) cells_[column + 1] = "";
  }
  void erase(std::size_t begin, std::size_t end) {
    for (std::size_t i = begin; i < std::min(end, cells_.size()); ++i) blank(i);
  }
  std::string text() const {
    std::string all;
    for (const std::string& cell : cells_) all += cell;
    return all.substr(0, all.find_last_not_of(' ') + 1);
  }

 private:
  void grow(std::size_t size) {
    if (cells_.size() < size) cells_.resize(size, " ");
  }
  void blank(std::size_t column) {
    if (cells_[column].empty()) cells_[column - 1] = " ";
    if (column + 1 < cells_.size() && cells_[column + 1].empty()) cells_[column + 1] = " ";
    cells_[column] = " ";
  }
  std::vector<std::string> cells_;
};

TEST_CASE("TerminalRow: shows what a list of columns would show, whatever is written and erased") {
  for (unsigned seed = 0; seed < 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    TerminalRow text;
    Model model;
    for (int step = 0; step < 500; ++step) {
      const std::size_t column = random() % 12;
      if (random() % 4 == 0) {
        const std::size_t end = random() % 14;
        text.erase(column, end);
        model.erase(column, end);
      } else if (random() % 2 == 0) {
        text.put(column, kWide, 2, nullptr);
        model.put(column, kWide, 2);
      } else {
        const std::string character(1, static_cast<char>('a' + random() % 26));
        text.put(column, character, 1, nullptr);
        model.put(column, character, 1);
      }
      REQUIRE(text.text(text.columns()) == model.text());
      for (std::size_t most = 0; most < 14; ++most) {
        REQUIRE(row_of(text.text(most)).written_columns() <= most);
      }
    }
  }
}

}  // namespace
}  // namespace launcher
