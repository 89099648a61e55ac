#include "launcher/plan/stream_selection.h"

#include <gtest/gtest.h>

namespace launcher {
namespace {

using Texts = std::vector<std::string>;

std::string shown(const std::string& text, int local_rank) {
  const auto selection = StreamSelection::parse(text);
  if (!selection) return "refused";
  const Streams streams = selection->of_rank(local_rank);
  return std::string(streams.out ? "o" : "-") + (streams.err ? "e" : "-");
}

TEST(StreamSelection, OneDigitIsForAllRanks) {
  EXPECT_EQ(shown("0", 7), "--");
  EXPECT_EQ(shown("1", 7), "o-");
  EXPECT_EQ(shown("2", 7), "-e");
  EXPECT_EQ(shown("3", 7), "oe");
}

TEST(StreamSelection, RanksAreNamedWithAnyNumberOfDigits) {
  EXPECT_EQ(shown("0:3,11:1,1234:2", 0), "oe");
  EXPECT_EQ(shown("0:3,11:1,1234:2", 1), "--");
  EXPECT_EQ(shown("0:3,11:1,1234:2", 11), "o-");
  EXPECT_EQ(shown("0:3,11:1,1234:2", 1234), "-e");
}

TEST(StreamSelection, WhetherAnythingIsSelected) {
  EXPECT_TRUE(StreamSelection().is_empty());
  EXPECT_TRUE(StreamSelection::parse("0")->is_empty());
  EXPECT_TRUE(StreamSelection::parse("4:0")->is_empty());
  EXPECT_FALSE(StreamSelection::parse("4:1")->is_empty());
  EXPECT_FALSE(StreamSelection::parse("2")->is_empty());
}

TEST(StreamSelection, WhatMeansNothingIsRefused) {
  for (const char* text : {"", "4", "-1", "33", "0:", ":3", "0:4", "0:3,", ",0:3", "0:3;1:3", "a:1", "0:3,1", "-1:3",
                           "99999999999:1", "0 :1", "0:13"}) {
    EXPECT_EQ(shown(text, 0), "refused") << text;
  }
}

TEST(RankList, NumbersWithCommas) {
  EXPECT_EQ(parse_rank_list("0,11,3"), (std::vector<int>{0, 11, 3}));
  for (const char* text : {"", ",", "1,", "1,,2", "a", "-1", "1 2"}) EXPECT_FALSE(parse_rank_list(text)) << text;
}

TEST(TextList, ADoubledCommaIsAComma) {
  EXPECT_EQ(parse_text_list("apple,orange"), (Texts{"apple", "orange"}));
  EXPECT_EQ(parse_text_list("a,,b,c"), (Texts{"a,b", "c"}));
  EXPECT_EQ(parse_text_list(""), Texts{});
  EXPECT_EQ(parse_text_list("a,"), Texts{"a"});
}

}  // namespace
}  // namespace launcher
