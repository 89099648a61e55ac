// The wire protocol of c10d's TCPStore. A request is one opcode byte followed by its fields in little-endian order. A
// string is a u64 length followed by its bytes; a list is a u64 count followed by its strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/little_endian.h"

namespace ddp::detail::store {

enum class Opcode : std::uint8_t {
  kValidate = 0,
  kSet = 1,
  kCompareSet = 2,
  kGet = 3,
  kAdd = 4,
  kCheck = 5,
  kWait = 6,
  kNumKeys = 7,
  kDelete = 8,
  kAppend = 9,
  kMultiGet = 10,
  kMultiSet = 11,
  kCancelWait = 12,
  kPing = 13,
  kQueuePush = 14,
  kQueuePop = 15,
  kQueueLen = 16,
  kListKeys = 17,
  kBarrier = 18,  // since torch 2.12
};

inline constexpr std::uint32_t kValidationNumber = 0x3C85F7CE;
inline constexpr std::uint8_t kReady = 0;
inline constexpr std::uint8_t kNotReady = 1;
inline constexpr std::uint8_t kStopWaiting = 0;
inline constexpr std::uint8_t kWaitCanceled = 1;

inline void append_text(std::string& out, std::string_view text) {
  append_integer(out, static_cast<std::uint64_t>(text.size()));
  out.append(text);
}

inline std::string request_bytes(Opcode opcode) {
  return std::string(1, static_cast<char>(opcode));
}

inline std::string request_bytes(Opcode opcode, std::string_view key) {
  std::string bytes = request_bytes(opcode);
  append_text(bytes, key);
  return bytes;
}

inline std::string request_bytes(Opcode opcode, const std::vector<std::string>& keys) {
  std::string bytes = request_bytes(opcode);
  append_integer(bytes, static_cast<std::uint64_t>(keys.size()));
  for (const std::string& key : keys) append_text(bytes, key);
  return bytes;
}

}  // namespace ddp::detail::store
