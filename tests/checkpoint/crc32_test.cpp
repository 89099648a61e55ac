#include "checkpoint/pt/crc32.h"

#include <string>

#include "tests/support/catch.h"

namespace ddp::pt {
namespace {

// Bit by bit, as the polynomial says.
uint32_t by_bits(std::string_view bytes, uint32_t crc = 0) {
  crc = ~crc;
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~crc;
}

std::string noise(size_t size) {
  std::string text(size, '\0');
  uint32_t state = 7;
  for (auto& byte : text) byte = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  return text;
}

TEST_CASE("Crc32: is that of zip files") {
  CHECK(crc32("123456789", 9) == 0xcbf43926);
  CHECK(crc32(nullptr, 0) == 0);
  CHECK(crc32("", 0, 0x12345678) == 0x12345678);
}

TEST_CASE("Crc32: is right for every length and every place in memory") {
  const auto text = noise(400);
  for (size_t begin = 0; begin < 17; ++begin) {
    for (size_t size = 0; size + begin <= text.size(); ++size) {
      const auto piece = std::string_view(text).substr(begin, size);
      const auto expected = by_bits(piece);
      if (crc32(piece.data(), size) != expected) FAIL("from " << begin << ", " << size << " bytes");
      if (crc32_portable(piece.data(), size) != expected) FAIL("portable, from " << begin << ", " << size << " bytes");
    }
  }
  SUCCEED();
}

TEST_CASE("Crc32: goes on from any cut, by either way") {
  const auto text = noise(300);
  const auto whole = by_bits(text);
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const auto fast = crc32(text.data(), cut), slow = crc32_portable(text.data(), cut);
    CHECK(crc32(text.data() + cut, text.size() - cut, slow) == whole);
    CHECK(crc32_portable(text.data() + cut, text.size() - cut, fast) == whole);
  }
}

TEST_CASE("Crc32: zeros and ones at the ends count") {
  for (const char byte : {'\0', '\xff'}) {
    uint32_t last = 1;
    for (const size_t size : {1, 63, 64, 65, 128, 4096}) {
      const std::string text(size, byte);
      CHECK(crc32(text.data(), size) == by_bits(text));
      CHECK(crc32(text.data(), size) != last);
      last = crc32(text.data(), size);
    }
  }
}

}  // namespace
}  // namespace ddp::pt
