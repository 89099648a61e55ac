#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <cstdint>
#include <string>
#include <vector>

// The texts that are kept in a store, whose values are bytes.
namespace ddp::detail {

inline std::vector<uint8_t> to_bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

// Waits for the key, as get() does.
inline std::string get_text(c10d::Store& store, const std::string& key) {
  const std::vector<uint8_t> value = store.get(key);
  return {value.begin(), value.end()};
}

}  // namespace ddp::detail
