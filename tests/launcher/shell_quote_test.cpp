#include "launcher/system/shell_quote.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

TEST(ShellQuote, PlainWordsStayAsTheyAre) {
  for (const std::string word : {"train", "--lr=0.1", "a_b-c+d./:,@%", "\xC3\xA4"}) EXPECT_EQ(shell_quote(word), word);
}

TEST(ShellQuote, WhatAShellWouldInterpretIsQuoted) {
  EXPECT_EQ(shell_quote(""), "''");
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("$HOME `x` \"y\" \\ *"), "'$HOME `x` \"y\" \\ *'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
}

TEST(ShellQuote, ControlCharactersAreEscaped) {
  EXPECT_EQ(shell_quote("a\nb"), "$'a\\012b'");
  EXPECT_EQ(shell_quote("\x1b[1m'\\1"), "$'\\033[1m\\'\\\\1'");
}

}  // namespace
}  // namespace launcher
