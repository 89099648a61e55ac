// Every cut of a header and every value of each of its bytes: parse_header() returns a header that keeps its promises,
// or throws FormatError. Random damage: fuzz/safetensors_header.cpp.
#include <gtest/gtest.h>

#include "tests/checkpoint/safetensors_headers.h"

namespace ddp::safetensors {
namespace {

std::string valid_json() {
  return test::example_header().substr(kLengthBytes);
}

bool survives(const std::string& json) {
  try {
    EXPECT_STREQ(test::broken_promise(parse_header(json, test::kExampleDataBytes), test::kExampleDataBytes), nullptr);
    return true;
  } catch (const FormatError&) {
    return false;
  }
}

TEST(SafetensorsHeaderDamage, EveryCutIsRefused) {
  const auto json = valid_json();
  const auto text_bytes = json.find_last_of('}') + 1;  // what follows is padding
  for (size_t length = 0; length < text_bytes; ++length) EXPECT_FALSE(survives(json.substr(0, length))) << length;
  EXPECT_TRUE(survives(json));
}

TEST(SafetensorsHeaderDamage, EveryByteValueAtEveryPositionIsHandled) {
  const auto json = valid_json();
  for (size_t i = 0; i < json.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      auto changed = json;
      changed[i] = static_cast<char>(byte);
      survives(changed);
    }
  }
}

}  // namespace
}  // namespace ddp::safetensors
