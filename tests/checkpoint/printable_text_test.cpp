// What of a file's text reaches a terminal.
#include "checkpoint/core/printable_text.h"

#include <random>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "tests/support/catch.h"

namespace ddp {
namespace {

using namespace std::string_literals;

TEST_CASE("PrintableText: control characters and damaged ones are numbers, all else stays") {
  CHECK(printable_text("fc.weight, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \\x1b") ==
        "fc.weight, \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80 \\x1b");
  CHECK(printable_text("\x1b[2J\0\x7f\r\n"s) == "\\x1b[2J\\x00\\x7f\\x0d\\x0a");
  CHECK(printable_text("\xc2\x9b\xc2\xa0\xc2\x80") == "\\xc2\\x9b\xc2\xa0\\xc2\\x80");
  CHECK(printable_text("\xff\xc3\x28\xed\xa0\x80\xe2\x82") == "\\xff\\xc3(\\xed\\xa0\\x80\\xe2\\x82");
  CHECK(printable_text("a\nb\tc\r", "\n\t") == "a\nb\tc\\x0d");
}

TEST_CASE("PrintableText: of random bytes nothing is left that a terminal obeys") {
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::string bytes(random() % 40, '\0');
    for (auto& byte : bytes) byte = static_cast<char>(random() % 3 == 0 ? random() % 0x20 : random());
    std::string_view rest;
    const auto text = printable_text(bytes);
    for (rest = text; !rest.empty();) {
      const auto length = detail::utf8_length(rest);
      REQUIRE(length > 0);
      const auto first = static_cast<unsigned char>(rest[0]);
      REQUIRE((first >= 0x20 && first != 0x7f));
      REQUIRE_FALSE((first == 0xc2 && static_cast<unsigned char>(rest[1]) < 0xa0));
      rest.remove_prefix(length);
    }
    REQUIRE(printable_text(text) == text);
  }
}

}  // namespace
}  // namespace ddp
