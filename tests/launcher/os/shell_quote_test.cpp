#include "launcher/os/system/shell_quote.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <string>

#include "tests/support/catch.h"
#include "tests/support/child_process.h"

namespace launcher {
namespace {

TEST_CASE("ShellQuote: plain words stay as they are") {
  for (const std::string word : {"train", "--lr=0.1", "a_b-c+d./:,@%", "\xC3\xA4"}) CHECK(shell_quote(word) == word);
}

TEST_CASE("ShellQuote: what a shell would interpret is quoted") {
  CHECK(shell_quote("") == "''");
  CHECK(shell_quote("a b") == "'a b'");
  CHECK(shell_quote("$HOME `x` \"y\" \\ *") == "'$HOME `x` \"y\" \\ *'");
  CHECK(shell_quote("it's") == "'it'\\''s'");
}

TEST_CASE("ShellQuote: control characters are escaped") {
  CHECK(shell_quote("a\nb") == "$'a\\012b'");
  CHECK(shell_quote("\x1b[1m'\\1") == "$'\\033[1m\\'\\\\1'");
  CHECK(shell_quote("\x7f") == "$'\\177'");
}

TEST_CASE("ShellQuote: control characters of eight bits are escaped too, whether UTF-8 or not") {
  CHECK(shell_quote("\xc2\x9b"
                    "31m") == "$'\\302\\23331m'");
  CHECK(shell_quote("\x9b"
                    "31m") == "$'\\23331m'");
  CHECK(shell_quote("\xc2\xa0") == "\xc2\xa0");
  CHECK(shell_quote("\xe4\xb8\xad \xff") == "$'\xe4\xb8\xad \\377'");
}

// What bash makes of the words: each of them, then a zero.
std::string read_by_bash(const std::string& words) {
  ddp::test::ChildProcess bash({{"/bin/bash", "-c", "printf '%s\\0' " + words}});
  return bash.wait(std::chrono::seconds(20)).output;
}

TEST_CASE("ShellQuote: a shell reads every word as it was, and sees one line without control characters") {
  std::mt19937 random(1);
  const std::string odd =
      "ab'\"\\$`!*?[]{}()<>|&;#~=%^ \t\n\x01\x1b\x7f\x80\x9b\xc2\xc3\xa4\xe4\xb8\xad\xff"
      "019";
  std::string words;
  std::string expected;
  for (int i = 0; i < 500; ++i) {
    std::string word(random() % 12, ' ');
    for (char& c : word) c = i % 2 == 0 ? odd[random() % odd.size()] : static_cast<char>(random() % 255 + 1);
    const std::string quoted = shell_quote(word);
    CHECK(std::none_of(quoted.begin(), quoted.end(),
                       [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }));
    words += quoted + " ";
    expected.append(word).push_back('\0');
  }
  CHECK(read_by_bash(words) == expected);
}

}  // namespace
}  // namespace launcher
