#include "base/crc32c.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>

#include "tests/support/catch.h"

namespace ddp {
namespace {

std::string random_bytes(size_t size) {
  std::mt19937_64 random(size + 1);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The polynomial division itself, bit by bit (RFC 3720, chapter 12.1): slow, and too plain to be wrong.
uint32_t crc32c_by_bits(std::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (const char byte : bytes) {
    crc ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82F63B78U : 0U);
  }
  return ~crc;
}

// The test vectors of RFC 3720, appendix B.4, and the usual check value.
TEST_CASE("Crc32c: gives the values of the RFC") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  CHECK(crc32c(rising) == 0x46DD794EU);
  CHECK(crc32c(std::string(rising.rbegin(), rising.rend())) == 0x113FDB5CU);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c("") == 0U);
  UNSCOPED_INFO("an iSCSI command of the appendix");
  const std::string command(
      "\x01\xc0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x14\0\0\0\0\0\x04\0\0\0\0\x14\0\0\0\x18\x28\0\0\0\0\0\0\0\x02\0\0\0\0\0\0"
      "\0",
      48);
  CHECK(crc32c(command) == 0xD9963A56U);
}

TEST_CASE("Crc32c: is the remainder of a division, bit by bit") {
  const auto bytes = random_bytes(30'000);
  for (size_t size = 0; size < 300; ++size) {
    const auto piece = std::string_view(bytes).substr(size, size);
    REQUIRE(crc32c(piece) == crc32c_by_bits(piece));
    REQUIRE(crc32c_portable(piece.data(), piece.size()) == crc32c_by_bits(piece));
  }
  CHECK(crc32c(bytes) == crc32c_by_bits(bytes));
}

TEST_CASE("Crc32c: every byte that is wrong is noticed") {
  auto bytes = random_bytes(50'000);
  const uint32_t right = crc32c(bytes);
  std::mt19937_64 random(1);
  for (int i = 0; i < 200; ++i) {
    const size_t at = random() % bytes.size();
    const char flip = static_cast<char>(uint32_t{1} << (random() % 8));
    bytes[at] ^= flip;
    REQUIRE(crc32c(bytes) != right);
    bytes[at] ^= flip;
  }
  CHECK(crc32c(bytes) == right);
}

TEST_CASE("Crc32c: the instruction and the tables agree for every length and alignment") {
  const auto bytes = random_bytes(100'000);
  for (const size_t size : {0, 1, 7, 8, 9, 63, 1000, 24575, 24576, 24577, 49152, 90001}) {
    for (size_t offset = 0; offset < 9; ++offset) {
      INFO(size << " bytes from " << offset);
      CHECK(crc32c(bytes.data() + offset, size) == crc32c_portable(bytes.data() + offset, size));
    }
  }
}

TEST_CASE("Crc32c: pieces give the checksum of the whole") {
  const auto bytes = random_bytes(60'000);
  const auto whole = crc32c(bytes.data(), bytes.size());
  for (const size_t cut : {0, 1, 100, 30'000, 59'999, 60'000}) {
    const auto first = crc32c(bytes.data(), cut);
    CHECK(crc32c(bytes.data() + cut, bytes.size() - cut, first) == whole);
    CHECK(crc32c_combine(first, crc32c(bytes.data() + cut, bytes.size() - cut), bytes.size() - cut) == whole);
  }
}

TEST_CASE("Crc32c: any number of pieces of any size gives the checksum of the whole") {
  const auto bytes = random_bytes(100'000);
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    uint32_t continued = 0;
    uint32_t combined = 0;
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t size = std::min<size_t>(random() % (round < 10 ? 100 : 60'000), bytes.size() - begin);
      continued = crc32c(bytes.data() + begin, size, continued);
      combined = crc32c_combine(combined, crc32c(bytes.data() + begin, size), size);
      begin += size;
    }
    REQUIRE(continued == crc32c(bytes));
    REQUIRE(combined == crc32c(bytes));
  }
}

TEST_CASE("Crc32c: pieces may be joined in any order of joining") {
  const auto a = random_bytes(1000);
  const auto b = random_bytes(2001);
  const auto c = random_bytes(37);
  const uint32_t left = crc32c_combine(crc32c_combine(crc32c(a), crc32c(b), b.size()), crc32c(c), c.size());
  const uint32_t right = crc32c_combine(crc32c(a), crc32c_combine(crc32c(b), crc32c(c), c.size()), b.size() + c.size());
  CHECK(left == right);
  CHECK(left == crc32c(a + b + c));
}

TEST_CASE("Crc32c: pieces of terabytes are joined without reading them") {
  // Checksums of 2^n zero bytes, each from two of the one before; the first ones are checked against the bytes.
  const uint32_t before = crc32c("a checksum of something");
  uint32_t zeros = crc32c(std::string(1, '\0'));
  uint32_t one_by_one = crc32c_combine(before, zeros, 1);
  for (int n = 1; n <= 62; ++n) {
    const uint64_t half = uint64_t{1} << (n - 1);
    one_by_one = crc32c_combine(one_by_one, zeros, half);  // 1 + 1 + 2 + 4 + … = 2^n zeros behind `before`
    zeros = crc32c_combine(zeros, zeros, half);
    if (n <= 16) REQUIRE(zeros == crc32c(std::string(size_t{1} << n, '\0')));
    REQUIRE(crc32c_combine(before, zeros, uint64_t{1} << n) == one_by_one);
  }
}

}  // namespace
}  // namespace ddp
