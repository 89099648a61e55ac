#include "base/bounded_text.h"

#include <algorithm>

#include "base/utf8.h"

namespace ddp::detail {
namespace {

constexpr std::string_view kHexDigits = "0123456789abcdef";

}  // namespace

void BoundedText::append(std::string_view text) {
  const std::size_t count = std::min(text.size(), kCapacity - size_);
  std::copy_n(text.data(), count, buffer_.data() + size_);
  size_ += count;
}

void BoundedText::append_decimal(std::uint64_t number, int min_digits) {
  std::array<char, 20> digits{};
  std::size_t first = digits.size();
  while (number > 0 || min_digits > 0) {
    digits[--first] = static_cast<char>('0' + number % 10);
    number /= 10;
    --min_digits;
  }
  append({digits.data() + first, digits.size() - first});
}

void BoundedText::append_hex(std::uint64_t number) {
  append("0x");
  int shift = 60;
  while (shift > 0 && (number >> shift) == 0) shift -= 4;
  for (; shift >= 0; shift -= 4) append({&kHexDigits[(number >> shift) & 15], 1});
}

void BoundedText::append_json(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text.front());
    if (length == 0) {
      append("?");
    } else if (byte == '"' || byte == '\\') {
      append("\\");
      append(text.substr(0, 1));
    } else if (byte == '\n') {
      append("\\n");
    } else if (byte < 0x20 || byte == 0x7f) {
      append("\\u00");
      append({&kHexDigits[byte >> 4], 1});
      append({&kHexDigits[byte & 15], 1});
    } else {
      append(text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

}  // namespace ddp::detail
