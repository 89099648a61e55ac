#include "launcher/plan/stream_selection.h"

#include <string>
#include <vector>

#include "tests/support/catch.h"

namespace launcher {
namespace {

using Texts = std::vector<std::string>;

std::string shown_selection(const std::string& text, int local_rank) {
  const auto selection = StreamSelection::parse(text);
  if (!selection) return "refused";
  const Streams streams = selection->of_rank(local_rank);
  return std::string(streams.out ? "o" : "-") + (streams.err ? "e" : "-");
}

TEST_CASE("StreamSelection: one digit is for all ranks") {
  CHECK(shown_selection("0", 7) == "--");
  CHECK(shown_selection("1", 7) == "o-");
  CHECK(shown_selection("2", 7) == "-e");
  CHECK(shown_selection("3", 7) == "oe");
}

TEST_CASE("StreamSelection: ranks are named with any number of digits") {
  CHECK(shown_selection("0:3,11:1,1234:2", 0) == "oe");
  CHECK(shown_selection("0:3,11:1,1234:2", 1) == "--");
  CHECK(shown_selection("0:3,11:1,1234:2", 11) == "o-");
  CHECK(shown_selection("0:3,11:1,1234:2", 1234) == "-e");
}

TEST_CASE("StreamSelection: knows whether anything is selected") {
  CHECK(StreamSelection().is_empty());
  CHECK(StreamSelection::parse("0")->is_empty());
  CHECK(StreamSelection::parse("4:0")->is_empty());
  CHECK_FALSE(StreamSelection::parse("4:1")->is_empty());
  CHECK_FALSE(StreamSelection::parse("2")->is_empty());
}

TEST_CASE("StreamSelection: what means nothing is refused") {
  for (const char* text : {"", "4", "-1", "33", "0:", ":3", "0:4", "0:3,", ",0:3", "0:3;1:3", "a:1", "0:3,1", "-1:3",
                           "99999999999:1", "0 :1", "0:13"}) {
    CAPTURE(text);
    CHECK(shown_selection(text, 0) == "refused");
  }
}

TEST_CASE("RankList: is numbers with commas") {
  CHECK(parse_rank_list("0,11,3") == std::vector<int>{0, 11, 3});
  for (const char* text : {"", ",", "1,", "1,,2", "a", "-1", "1 2"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_rank_list(text));
  }
}

TEST_CASE("TextList: a doubled comma is a comma") {
  CHECK(parse_text_list("apple,orange") == Texts{"apple", "orange"});
  CHECK(parse_text_list("a,,b,c") == Texts{"a,b", "c"});
  CHECK(parse_text_list("") == Texts{});
  CHECK(parse_text_list("a,") == Texts{"a"});
}

}  // namespace
}  // namespace launcher
