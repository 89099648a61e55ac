// What the fuzz targets share. A target is one source with seeds() and run(): libfuzzer.cpp lets libFuzzer drive it
// where clang is (preset `fuzz`), driver.cpp runs it everywhere.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

namespace fuzz {

/// What the code under test made of an input. The driver wants both: a target whose inputs are all refused tests
/// nothing behind the first check.
enum class Outcome { kAccepted, kRefused };

/// Inputs from which mutation begins. They need not be accepted: pieces of them are put into each other.
std::vector<std::string> seeds();

/// Words that mutation puts into inputs, of the format that the target reads: values which mean something there. One of
/// more than kWordName bytes begins with a name, and takes the place of what an input has under that name. A target
/// need not have any.
std::vector<std::string> dictionary();
inline constexpr std::size_t kWordName = 2;

/// The input that makes a target read a file with this content. The content itself unless the target says otherwise.
std::string seed_of_file(const std::string& content);

/// Gives one input to the code under test and checks its promises with require(). Exceptions that were not promised
/// leave it, and end the process.
Outcome run(std::string_view input);

/// A broken promise ends the process, which both drivers notice.
inline void require(bool holds, const char* promise) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", promise);
  std::abort();
}

/// A seed of a target whose inputs begin with a byte that chooses.
inline std::string chosen(char kind, std::string_view bytes) {
  return std::string(1, kind).append(bytes);
}

/// Reads numbers and pieces from the front of an input; zeros and nothing at its end.
class Input {
 public:
  explicit Input(std::string_view bytes) : left_(bytes) {}

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
  /// Up to the next `separator`, which is taken too.
  std::string_view until(char separator) {
    const std::string_view found = left_.substr(0, left_.find(separator));
    left_.remove_prefix(std::min(left_.size(), found.size() + 1));
    return found;
  }

 private:
  std::string_view left_;
};

}  // namespace fuzz
