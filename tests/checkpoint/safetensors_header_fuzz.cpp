// Random damage to a header: parse_header() returns a header that keeps its promises, or throws FormatError.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
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

TEST(SafetensorsHeaderFuzz, EveryCutIsRefused) {
  const auto json = valid_json();
  const auto text_bytes = json.find_last_of('}') + 1;  // what follows is padding
  for (size_t length = 0; length < text_bytes; ++length) EXPECT_FALSE(survives(json.substr(0, length))) << length;
  EXPECT_TRUE(survives(json));
}

TEST(SafetensorsHeaderFuzz, EveryByteValueAtEveryPositionIsHandled) {
  const auto json = valid_json();
  for (size_t i = 0; i < json.size(); ++i) {
    for (int byte = 0; byte < 256; ++byte) {
      auto changed = json;
      changed[i] = static_cast<char>(byte);
      survives(changed);
    }
  }
}

TEST(SafetensorsHeaderFuzz, RandomEditsAreHandled) {
  const std::string tokens[] = {"{",
                                "}",
                                "[",
                                "]",
                                ",",
                                ":",
                                "\"",
                                "0",
                                "-1",
                                "1e9",
                                "null",
                                "\"a\"",
                                "true",
                                "9223372036854775807",
                                "18446744073709551615",
                                "\\u0000",
                                "\"dtype\"",
                                "\"shape\"",
                                "\"data_offsets\"",
                                "\"__metadata__\"",
                                "\"F32\""};
  const auto json = valid_json();
  std::mt19937_64 random(20'240'917);
  const auto below = [&](size_t bound) { return static_cast<size_t>(random() % bound); };
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    auto changed = json;
    for (size_t edits = 1 + below(4); edits > 0; --edits) {
      const auto at = below(changed.size());
      switch (below(4)) {
        case 0:
          changed[at] = static_cast<char>(random());
          break;
        case 1:
          changed.erase(at, 1 + below(12));
          break;
        case 2:
          changed.insert(at, tokens[below(std::size(tokens))]);
          break;
        default: {  // a piece moves elsewhere
          const auto piece = changed.substr(at, 1 + below(40));
          changed.insert(below(changed.size()), piece);
        }
      }
      if (changed.empty()) changed.push_back('{');
    }
    accepted += survives(changed) ? 1 : 0;
  }
  // Some edits only touch metadata or padding: if none passed, the mutations would test nothing but the first byte.
  EXPECT_GT(accepted, 0);
}

}  // namespace
}  // namespace ddp::safetensors
