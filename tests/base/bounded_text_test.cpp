#include "base/bounded_text.h"

#include <nlohmann/json.hpp>

#include <iomanip>
#include <limits>
#include <memory>
#include <random>
#include <sstream>
#include <string>

#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

std::string json(std::string_view text) {
  const auto out = std::make_unique<BoundedText>();
  out->append_json(text);
  return std::string(out->view());
}

TEST_CASE("BoundedText: numbers") {
  const auto out = std::make_unique<BoundedText>();
  out->append_decimal(0);
  out->append(" ");
  out->append_decimal(std::numeric_limits<std::uint64_t>::max());
  out->append(" ");
  out->append_decimal(42, 6);
  out->append(" ");
  out->append_hex(0);
  out->append(" ");
  out->append_hex(0xdeadbeef00ULL);
  out->append(" ");
  out->append_hex(std::numeric_limits<std::uint64_t>::max());
  CHECK(out->view() == "0 18446744073709551615 000042 0x0 0xdeadbeef00 0xffffffffffffffff");
}

TEST_CASE("BoundedText: JSON strings") {
  CHECK(json("plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80") == "plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
  CHECK(json("\"a\\b\"\n\t\x7f") == "\\\"a\\\\b\\\"\\n\\u0009\\u007f");
  CHECK(json(std::string_view("\0", 1)) == "\\u0000");
}

TEST_CASE("BoundedText: bytes that are no UTF-8 are replaced") {
  CHECK(json("a\xff") == "a?");
  CHECK(json("\xC3") == "?");                 // cut off
  CHECK(json("\xC0\xAF") == "??");            // longer than needed
  CHECK(json("\xE0\x80\xAF") == "???");       // the same
  CHECK(json("\xED\xA0\x80") == "???");       // a surrogate
  CHECK(json("\xF4\x90\x80\x80") == "????");  // above the last character
}

TEST_CASE("BoundedText: what does not fit is left out") {
  const auto out = std::make_unique<BoundedText>();
  CHECK_FALSE(out->is_full());
  out->append(std::string(1 << 20, 'x'));
  CHECK(out->is_full());
  const std::size_t size = out->view().size();
  out->append_json("more");
  out->append_decimal(5);
  CHECK(out->view() == std::string(size, 'x'));
  CHECK(out->c_str()[size] == '\0');
  out->clear();
  CHECK(out->view() == "");
}

TEST_CASE("BoundedText: is empty at first and after clearing") {
  const auto out = std::make_unique<BoundedText>();
  CHECK(out->view().empty());
  CHECK(std::string(out->c_str()) == "");
  out->append("text");
  CHECK(std::string(out->c_str()) == "text");
  out->append("");
  out->append_json("");
  CHECK(out->view() == "text");
  out->clear();
  CHECK(std::string(out->c_str()) == "");
  CHECK_FALSE(out->is_full());
}

TEST_CASE("BoundedText: numbers are those of the standard library") {
  std::mt19937_64 random(5);
  const auto out = std::make_unique<BoundedText>();
  for (int i = 0; i < 500; ++i) {
    const std::uint64_t number = random() >> (random() % 64);
    std::ostringstream expected;
    expected << number << " " << std::setw(6) << std::setfill('0') << number << " 0x" << std::hex << number;
    out->clear();
    out->append_decimal(number);
    out->append(" ");
    out->append_decimal(number, 6);
    out->append(" ");
    out->append_hex(number);
    REQUIRE(out->view() == expected.str());
  }
}

// Unicode 15, table 3-7: which bytes make a character.
TEST_CASE("BoundedText: just the characters of Unicode are kept") {
  const auto encoded = [](std::uint32_t character) {
    std::string bytes;
    if (character < 0x80) return std::string(1, static_cast<char>(character));
    if (character < 0x800) {
      bytes = {static_cast<char>(0xC0 | character >> 6)};
    } else {
      if (character < 0x10000) bytes = {static_cast<char>(0xE0 | character >> 12)};
      if (character >= 0x10000) {
        bytes = {static_cast<char>(0xF0 | character >> 18), static_cast<char>(0x80 | (character >> 12 & 0x3F))};
      }
      bytes += static_cast<char>(0x80 | (character >> 6 & 0x3F));
    }
    return bytes + static_cast<char>(0x80 | (character & 0x3F));
  };
  for (const std::uint32_t character : {0x20U, 0x7EU, 0x80U, 0x7FFU, 0x800U, 0xFFFU, 0x1000U, 0xD7FFU, 0xE000U, 0xFFFFU,
                                        0x10000U, 0x3FFFFU, 0x40000U, 0xFFFFFU, 0x100000U, 0x10FFFFU}) {
    INFO(std::hex << character);
    CHECK(json(encoded(character)) == encoded(character));
  }
  for (const std::uint32_t character : {0xD800U, 0xDBFFU, 0xDC00U, 0xDFFFU, 0x110000U, 0x1FFFFFU}) {
    INFO(std::hex << character);
    CHECK(json(encoded(character)) == std::string(encoded(character).size(), '?'));
  }
}

TEST_CASE("BoundedText: a character that is cut off spoils nothing behind it") {
  CHECK(json("\xE2\x82.") ==
        "?"
        "?.");
  CHECK(json("\xF0\x9F\x98\"") == "???\\\"");
  CHECK(json("\xC3\xC3\xA4") == "?\xC3\xA4");
  CHECK(json("\x80\xBFok") == "??ok");
}

// What comes out is read by torchrun and ddprun: it has to be JSON whatever went in.
TEST_CASE("BoundedText: any bytes make a JSON string that says as much of them as can be said") {
  std::mt19937_64 random(6);
  for (int round = 0; round < 300; ++round) {
    std::string bytes(random() % 64, '\0');
    // Half of them from what is special, so that it meets.
    for (char& byte : bytes) {
      byte = random() % 2 == 0 ? static_cast<char>(random()) : "\"\\\n\t\x7f\xC3\xA4\xE2\x82\xAC"[random() % 10];
    }
    const nlohmann::json parsed = nlohmann::json::parse("\"" + json(bytes) + "\"");
    REQUIRE(parsed.is_string());
    if (bytes.find_first_not_of("\"\\\n\t\x7f") == std::string::npos) REQUIRE(parsed == bytes);
    REQUIRE(json(parsed.get<std::string>()) == json(bytes));
  }
}

TEST_CASE("BoundedText: is full at its last byte and not before") {
  const auto out = std::make_unique<BoundedText>();
  out->append(std::string(1 << 20, 'x'));
  const std::size_t capacity = out->view().size();
  out->clear();
  out->append(std::string(capacity - 1, 'y'));
  CHECK_FALSE(out->is_full());
  out->append_hex(255);
  CHECK(out->is_full());
  CHECK(out->view().size() == capacity);
  CHECK(out->view().substr(capacity - 2) == "y0");
  CHECK(std::string(out->c_str()).size() == capacity);
}

}  // namespace
}  // namespace ddp::detail
