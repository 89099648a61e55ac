#include "base/crc32c.h"

#include <random>
#include <string>

#include "tests/support/catch.h"

namespace ddp {
namespace {

std::string random_bytes(size_t size) {
  std::mt19937_64 random(size + 1);
  std::string bytes(size, '\0');
  for (auto& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// RFC 3720, appendix B.4, and the usual check value.
// The test vectors of RFC 3720, appendix B.4.
TEST_CASE("Crc32c: gives the values of the RFC") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  CHECK(crc32c(rising) == 0x46DD794EU);
  CHECK(crc32c(std::string(rising.rbegin(), rising.rend())) == 0x113FDB5CU);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c("") == 0U);
}

TEST_CASE("Crc32c: has the published values") {
  const auto of = [](const std::string& bytes) { return crc32c(bytes.data(), bytes.size()); };
  CHECK(of("") == 0U);
  CHECK(of("123456789") == 0xe3069283U);
  CHECK(of(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(of(std::string(32, '\xff')) == 0x62a8ab43U);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  CHECK(of(rising) == 0x46dd794eU);
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

}  // namespace
}  // namespace ddp
