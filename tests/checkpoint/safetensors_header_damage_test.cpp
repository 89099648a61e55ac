// Every cut of a header and every value of each of its bytes: parse_header() returns a header that keeps its promises,
// or throws FormatError. Random damage: fuzz/safetensors_header.cpp.

#include <string>

#include "tests/checkpoint/safetensors_headers.h"
#include "tests/support/catch.h"

namespace ddp::safetensors {
namespace {

std::string valid_json() {
  return test::example_header().substr(kLengthBytes);
}

bool survives(const std::string& json) {
  try {
    const auto header = parse_header(json, test::kExampleDataBytes);
    CHECK(test::broken_promise(header, test::kExampleDataBytes) == nullptr);
    return true;
  } catch (const FormatError&) {
    return false;
  }
}

TEST_CASE("SafetensorsHeaderDamage: every cut is refused") {
  const auto json = valid_json();
  const auto text_bytes = json.find_last_of('}') + 1;  // what follows is padding
  for (size_t length = 0; length < text_bytes; ++length) {
    UNSCOPED_INFO(length);
    CHECK_FALSE(survives(json.substr(0, length)));
  }
  CHECK(survives(json));
}

TEST_CASE("SafetensorsHeaderDamage: every byte value at every position is handled") {
  const auto json = valid_json();
  for (size_t i = 0; i < json.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      auto changed = json;
      changed[i] = static_cast<char>(byte);
      const bool is_accepted = survives(changed);
      if (changed == json || byte == 0) {
        UNSCOPED_INFO("position " << i << ", byte " << byte);
        CHECK(is_accepted == (changed == json));
      }
    }
  }
}

}  // namespace
}  // namespace ddp::safetensors
