// The bytes of the requests that TCPStore understands: a number, then what it is about. No LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::detail::store {

enum class Query : uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDelete = 8,
  kCancelWait = 12,
};
inline constexpr uint32_t kValidationNumber = 0x3C85F7CE;
inline constexpr uint8_t kReady = 0;
inline constexpr uint8_t kNotReady = 1;
inline constexpr uint8_t kStopWaiting = 0;
inline constexpr uint8_t kWaitCanceled = 1;

template <typename Integer>
void append_integer(std::string& out, Integer value) {
  for (size_t i = 0; i < sizeof value; ++i) out.push_back(static_cast<char>(static_cast<uint64_t>(value) >> (8 * i)));
}

inline void append_text(std::string& out, std::string_view text) {
  append_integer(out, static_cast<uint64_t>(text.size()));
  out.append(text);
}

inline std::string begin(Query query) {
  return std::string(1, static_cast<char>(query));
}

inline std::string begin(Query query, std::string_view key) {
  std::string bytes = begin(query);
  append_text(bytes, key);
  return bytes;
}

inline std::string begin(Query query, const std::vector<std::string>& keys) {
  std::string bytes = begin(query);
  append_integer(bytes, static_cast<uint64_t>(keys.size()));
  for (const std::string& key : keys) append_text(bytes, key);
  return bytes;
}

}  // namespace ddp::detail::store
