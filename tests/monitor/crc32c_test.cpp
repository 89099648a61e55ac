#include "monitor/crc32c.h"

#include <gtest/gtest.h>

#include <string>

namespace ddp {
namespace {

// The test vectors of RFC 3720, appendix B.4.
TEST(Crc32c, gives_the_values_of_the_rfc) {
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
  std::string rising;
  for (int i = 0; i < 32; ++i) rising.push_back(static_cast<char>(i));
  EXPECT_EQ(crc32c(rising), 0x46DD794EU);
  EXPECT_EQ(crc32c(std::string(rising.rbegin(), rising.rend())), 0x113FDB5CU);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(""), 0U);
}

TEST(Crc32c, the_mask_rotates_by_15_and_adds) {
  EXPECT_EQ(masked_crc32c(""), 0xA282EAD8U);
  EXPECT_EQ(masked_crc32c("123456789"), ((0xE3069283U >> 15) | (0xE3069283U << 17)) + 0xA282EAD8U);
}

}  // namespace
}  // namespace ddp
