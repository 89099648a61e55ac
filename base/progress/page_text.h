// Text stored in atomic words, which may be read while it is written. The stores are ordered between the stores of the
// sequence number that protects the text.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

#include "base/progress/page.h"
#include "base/utf8.h"

namespace ddp::detail {

// The capacity is one byte less than the size of the words, because the text ends with a zero byte.
template <std::size_t words>
constexpr std::size_t capacity_of(const TextWords<words>& /*text*/) {
  return 8 * words - 1;
}

template <std::size_t words>
void store_text(TextWords<words>& to, std::string_view text) noexcept {
  text = text.substr(0, capacity_of(to));
  const std::size_t whole = text.size() / 8;
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < whole; ++i) {
    std::memcpy(&word, text.data() + 8 * i, 8);
    to[i].store(word, std::memory_order_release);
  }
  const std::size_t rest = text.size() % 8;
  word = 0;
  if (rest > 0 && whole > 0) {  // some bytes of the last word have been written
    std::memcpy(&word, text.data() + text.size() - 8, 8);
    word >>= 8 * (8 - rest);
  } else if (rest > 0) {
    std::memcpy(&word, text.data(), rest);
  }
  to[whole].store(word, std::memory_order_release);
}

template <std::size_t words>
std::string load_text(const TextWords<words>& from) {
  std::array<char, 8 * words> bytes{};
  for (std::size_t i = 0; i < words; ++i) {
    const std::uint64_t word = from[i].load(std::memory_order_acquire);
    std::memcpy(bytes.data() + 8 * i, &word, 8);
  }
  std::string text(bytes.data(), std::find(bytes.begin(), bytes.end(), '\0'));
  if (text.size() == capacity_of(from)) text.resize(whole_characters(text));  // it may end within a character
  return text;
}

template <std::size_t words>
bool equals(const TextWords<words>& stored, std::string_view text) noexcept {
  text = text.substr(0, capacity_of(stored));
  for (std::size_t i = 0; i <= text.size() / 8; ++i) {
    std::uint64_t word = 0;
    const std::size_t bytes = std::min<std::size_t>(8, text.size() - 8 * i);
    if (bytes > 0) std::memcpy(&word, text.data() + 8 * i, bytes);
    if (stored[i].load(std::memory_order_relaxed) != word) return false;
  }
  return true;
}

// The FNV-1a hash.
inline std::uint64_t hash_of(std::string_view text) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
  return hash;
}

}  // namespace ddp::detail
