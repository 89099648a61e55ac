// Text in a buffer of fixed size, for signal handlers: no function here allocates, locks or throws. Text that does not
// fit is dropped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace ddp::detail {

class BoundedText {
 public:
  void clear() { size_ = 0; }
  void append(std::string_view text);
  void append_decimal(std::uint64_t number, int min_digits = 1);
  void append_hex(std::uint64_t number);
  // Appends the text escaped for a JSON string, without quotes. Bytes that are not valid UTF-8 become '?'.
  void append_json(std::string_view text);

  std::string_view view() const { return {buffer_.data(), size_}; }
  const char* c_str() {
    buffer_[size_] = '\0';
    return buffer_.data();
  }
  bool is_full() const { return size_ == kCapacity; }

 private:
  static constexpr std::size_t kCapacity = 48 << 10;
  std::array<char, kCapacity + 1> buffer_{};
  std::size_t size_ = 0;
};

}  // namespace ddp::detail
