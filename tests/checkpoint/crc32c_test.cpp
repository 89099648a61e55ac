#include "checkpoint/storage/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

namespace ddp::storage {
namespace {

std::string random_bytes(size_t size) {
  std::mt19937_64 random(size + 1);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(Crc32c, HasThePublishedValues) {
  const auto of = [](const std::string& bytes) { return crc32c(bytes.data(), bytes.size()); };
  EXPECT_EQ(of(""), 0U);
  EXPECT_EQ(of("123456789"), 0xe3069283U);
  EXPECT_EQ(of(std::string(32, '\0')), 0x8a9136aaU);
  EXPECT_EQ(of(std::string(32, '\xff')), 0x62a8ab43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(of(rising), 0x46dd794eU);
}

TEST(Crc32c, TheInstructionAndTheTablesAgreeForEveryLengthAndAlignment) {
  const auto bytes = random_bytes(100'000);
  for (const size_t size : {0, 1, 7, 8, 9, 63, 1000, 24575, 24576, 24577, 49152, 90001}) {
    for (size_t offset = 0; offset < 9; ++offset) {
      EXPECT_EQ(crc32c(bytes.data() + offset, size), crc32c_portable(bytes.data() + offset, size))
          << size << " bytes from " << offset;
    }
  }
}

TEST(Crc32c, PiecesGiveTheChecksumOfTheWhole) {
  const auto bytes = random_bytes(60'000);
  const auto whole = crc32c(bytes.data(), bytes.size());
  for (const size_t cut : {0, 1, 100, 30'000, 59'999, 60'000}) {
    const auto first = crc32c(bytes.data(), cut);
    EXPECT_EQ(crc32c(bytes.data() + cut, bytes.size() - cut, first), whole);
    EXPECT_EQ(crc32c_combine(first, crc32c(bytes.data() + cut, bytes.size() - cut), bytes.size() - cut), whole);
  }
}

}  // namespace
}  // namespace ddp::storage
