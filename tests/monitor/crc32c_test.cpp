#include "monitor/crc32c.h"

#include <string>

#include "tests/support/catch.h"

namespace ddp {
namespace {

// The test vectors of RFC 3720, appendix B.4.
TEST_CASE("CRC32C: gives the values of the RFC") {
  CHECK(crc32c(std::string(32, '\0')) == 0x8A9136AAU);
  CHECK(crc32c(std::string(32, '\xFF')) == 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  CHECK(crc32c(rising) == 0x46DD794EU);
  CHECK(crc32c(std::string(rising.rbegin(), rising.rend())) == 0x113FDB5CU);
  CHECK(crc32c("123456789") == 0xE3069283U);
  CHECK(crc32c("") == 0U);
}

TEST_CASE("CRC32C: the mask rotates by 15 and adds") {
  CHECK(masked_crc32c("") == 0xA282EAD8U);
  CHECK(masked_crc32c("123456789") == ((0xE3069283U >> 15) | (0xE3069283U << 17)) + 0xA282EAD8U);
}

}  // namespace
}  // namespace ddp
