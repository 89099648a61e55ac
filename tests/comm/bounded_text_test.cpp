#include "comm/bounded_text.h"

#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>

namespace ddp::detail {
namespace {

std::string json(std::string_view text) {
  const auto out = std::make_unique<BoundedText>();
  out->append_json(text);
  return std::string(out->view());
}

TEST(BoundedText, Numbers) {
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
  EXPECT_EQ(out->view(), "0 18446744073709551615 000042 0x0 0xdeadbeef00 0xffffffffffffffff");
}

TEST(BoundedText, JsonStrings) {
  EXPECT_EQ(json("plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"), "plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80");
  EXPECT_EQ(json("\"a\\b\"\n\t\x7f"), "\\\"a\\\\b\\\"\\n\\u0009\\u007f");
  EXPECT_EQ(json(std::string_view("\0", 1)), "\\u0000");
}

TEST(BoundedText, BytesThatAreNoUtf8AreReplaced) {
  EXPECT_EQ(json("a\xff"), "a?");
  EXPECT_EQ(json("\xC3"), "?");                 // cut off
  EXPECT_EQ(json("\xC0\xAF"), "??");            // longer than needed
  EXPECT_EQ(json("\xE0\x80\xAF"), "???");       // the same
  EXPECT_EQ(json("\xED\xA0\x80"), "???");       // a surrogate
  EXPECT_EQ(json("\xF4\x90\x80\x80"), "????");  // above the last character
}

TEST(BoundedText, WhatDoesNotFitIsLeftOut) {
  const auto out = std::make_unique<BoundedText>();
  EXPECT_FALSE(out->is_full());
  out->append(std::string(1 << 20, 'x'));
  EXPECT_TRUE(out->is_full());
  const std::size_t size = out->view().size();
  out->append_json("more");
  out->append_decimal(5);
  EXPECT_EQ(out->view(), std::string(size, 'x'));
  EXPECT_EQ(out->c_str()[size], '\0');
  out->clear();
  EXPECT_EQ(out->view(), "");
}

}  // namespace
}  // namespace ddp::detail
