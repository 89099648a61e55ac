// Deflated bytes that are exactly what they should be, or an error: never more memory, never a loop without end.
#include "checkpoint/pt/inflate.h"

#include <algorithm>
#include <stdexcept>
#include <string>

#include "tests/checkpoint/deflated.h"
#include "tests/checkpoint/zip_forms.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"

namespace ddp::pt {
namespace {

using namespace std::string_literals;

using test::deflated;

std::string unpacked(std::string_view packed, uint64_t size, size_t* largest = nullptr) {
  std::string text;
  inflate(packed, size, [&](std::string_view piece) {
    text += piece;
    if (largest != nullptr) *largest = std::max(*largest, piece.size());
  });
  return text;
}

TEST_CASE("Inflate: gives back what was packed, in pieces") {
  for (const size_t size : {0, 1, 65'535, 65'536, 65'537, 1'000'000}) {
    std::string text(size, 'x');
    for (size_t i = 0; i < size; i += 7) text[i] = static_cast<char>(i * i);
    for (const int level : {0, 1, 9}) {
      INFO(size << " at level " << level);
      size_t largest = 0;
      CHECK((unpacked(deflated(text, level), size, &largest) == text));
      CHECK(largest <= 65'536);
    }
  }
  CHECK(unpacked(test::deflate_block("stored"), 6) == "stored");
}

TEST_CASE("Inflate: another size than announced is damage, however large either is") {
  const auto packed = deflated(std::string(100'000, 'x'));
  for (const uint64_t size : {uint64_t{0}, uint64_t{1}, uint64_t{99'999}, uint64_t{100'001}, ~uint64_t{0}}) {
    INFO(size);
    CHECK_THROWS_AS(unpacked(packed, size), FormatError);
  }
}

TEST_CASE("Inflate: a bomb stops at the announced size") {
  const auto packed = deflated(std::string(64 << 20, '\0'));
  REQUIRE(packed.size() < 100'000);
  uint64_t given = 0;
  CHECK_THROWS_AS(inflate(packed, 1000, [&](std::string_view piece) { given += piece.size(); }), FormatError);
  CHECK(given <= 1000);
}

TEST_CASE("Inflate: every cut and every appended byte is noticed") {
  const auto text = "a text, a text, and another text"s;
  const auto packed = deflated(text);
  for (size_t size = 0; size < packed.size(); ++size) {
    INFO(size);
    CHECK_THROWS_AS(unpacked(std::string_view(packed).substr(0, size), text.size()), FormatError);
  }
  for (const char byte : {'\0', 'x', '\xff'}) CHECK_THROWS_AS(unpacked(packed + byte, text.size()), FormatError);
  CHECK_THROWS_AS(unpacked(packed + packed, text.size()), FormatError);
}

TEST_CASE("Inflate: no flipped bit gives more bytes than announced") {
  const auto text = "a text, a text, and another text"s;
  const auto packed = deflated(text);
  for (size_t bit = 0; bit < 8 * packed.size(); ++bit) {
    auto changed = packed;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    uint64_t given = 0;
    const auto failure =
        test::error_of<FormatError>([&] { inflate(changed, text.size(), [&](auto piece) { given += piece.size(); }); });
    CHECK(given <= text.size());
    CHECK((failure != "no error" || given == text.size()));
  }
}

TEST_CASE("Inflate: forms that deflate does not have are refused") {
  UNSCOPED_INFO("block type 3; a stored block whose lengths differ; zlib's and gzip's own headers; a distance too far");
  for (const auto& packed : {"\x07"s, "\x01\x01\x00\x00\x00x"s, "\x78\x9c\x03\x00\x00\x00\x00\x01"s,
                             "\x1f\x8b\x08\x00\x00\x00\x00\x00"s, "\x63\x00\x42\x00"s.substr(0, 3), ""s}) {
    CHECK_THROWS_AS(unpacked(packed, 1), FormatError);
  }
}

TEST_CASE("Inflate: what its sink throws passes through") {
  const auto packed = deflated(std::string(1000, 'x'));
  CHECK_THROWS_AS(inflate(packed, 1000, [](std::string_view) { throw std::runtime_error("enough"); }),
                  std::runtime_error);
}

}  // namespace
}  // namespace ddp::pt
