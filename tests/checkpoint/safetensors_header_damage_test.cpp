// Every cut of a header and every value of each of its bytes: parse_header() returns a header that keeps its promises,
// or throws FormatError. Random damage: fuzz/safetensors_header.cpp.
#include <gtest/gtest.h>

#include <set>

#include "checkpoint/safetensors_header.h"

namespace ddp::safetensors {
namespace {

constexpr uint64_t kDataBytes = 8 + 64 + 36 + 6;

std::string valid_json() {
  Header header;
  header.metadata = {{"epoch", "12"}, {"note", "a \"quoted\" wörd"}};
  header.tensors = {{.name = "conv.weight", .dtype = DType::kF32, .shape = {4, 1, 2, 2}},
                    {.name = "conv.bias", .dtype = DType::kF32, .shape = {3, 3}},
                    {.name = "bn.num_batches_tracked", .dtype = DType::kI64, .shape = {}},
                    {.name = "mask", .dtype = DType::kBool, .shape = {2, 3}},
                    {.name = "none", .dtype = DType::kBF16, .shape = {0, 7}}};
  assign_ranges(header.tensors);
  return format_header(header).substr(kLengthBytes);
}

void expect_promises_kept(const Header& header) {
  uint64_t position = 0;
  std::set<std::string> names;
  for (const auto& tensor : header.tensors) {
    EXPECT_TRUE(names.insert(tensor.name).second);
    EXPECT_EQ(tensor.begin, position);
    uint64_t bytes = dtype_bytes(tensor.dtype);
    for (const auto size : tensor.shape) bytes *= static_cast<uint64_t>(size);
    EXPECT_EQ(tensor.end - tensor.begin, bytes);
    position = tensor.end;
  }
  EXPECT_EQ(position, kDataBytes);
}

bool survives(const std::string& json) {
  try {
    expect_promises_kept(parse_header(json, kDataBytes));
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
