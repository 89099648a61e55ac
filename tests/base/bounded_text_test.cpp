#include "base/bounded_text.h"

#include <limits>
#include <memory>
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

}  // namespace
}  // namespace ddp::detail
