#include "launcher/system/shell_quote.h"

#include <string>

#include "tests/support/catch.h"

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
}

}  // namespace
}  // namespace launcher
