// Builds requests of the store's protocol for the tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/nodes/store/request_parser.h"

namespace launcher::store::wire {

template <typename Integer>
std::string integer(Integer value) {
  std::string bytes;
  append_integer(bytes, value);
  return bytes;
}

inline std::string u64(std::uint64_t value) {
  return integer(value);
}
inline std::string text(const std::string& bytes) {
  std::string out;
  append_text(out, bytes);
  return out;
}
inline std::string opcode(Opcode code) {
  return std::string(1, static_cast<char>(code));
}
inline std::string hello() {
  return opcode(Opcode::kValidate).append(integer(kValidationNumber));
}

inline std::string with_key(Opcode code, const std::string& key) {
  return opcode(code) + text(key);
}
inline std::string with_keys(Opcode code, const std::vector<std::string>& keys) {
  std::string bytes = opcode(code) + u64(keys.size());
  for (const std::string& key : keys) bytes += text(key);
  return bytes;
}
inline std::string set(const std::string& key, const std::string& value) {
  return with_key(Opcode::kSet, key) + text(value);
}
inline std::string add(const std::string& key, std::int64_t by) {
  return with_key(Opcode::kAdd, key) + integer(by);
}

}  // namespace launcher::store::wire
