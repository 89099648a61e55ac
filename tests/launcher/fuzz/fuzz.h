// What the fuzz targets share. A target is one source with LLVMFuzzerTestOneInput and fuzz_seeds(): libFuzzer drives it
// where clang is (preset `fuzz`), driver.cpp everywhere else.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace launcher::fuzz {

// Inputs from which mutation begins.
std::vector<std::string> seeds();

// A broken promise ends the process, which both drivers notice.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

// Reads numbers and pieces from the front of an input; zeros and nothing at its end.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : left_(reinterpret_cast<const char*>(data), size) {}

  bool is_empty() const { return left_.empty(); }
  std::uint8_t byte() {
    if (left_.empty()) return 0;
    const auto value = static_cast<std::uint8_t>(left_.front());
    left_.remove_prefix(1);
    return value;
  }
  std::string_view piece(std::size_t size) {
    const std::string_view piece = left_.substr(0, size);
    left_.remove_prefix(piece.size());
    return piece;
  }
  std::string_view rest() { return piece(left_.size()); }
  // Up to the next `separator`, which is taken too.
  std::string_view until(char separator) {
    const std::string_view found = left_.substr(0, left_.find(separator));
    left_.remove_prefix(std::min(left_.size(), found.size() + 1));
    return found;
  }

 private:
  std::string_view left_;
};

}  // namespace launcher::fuzz
