#include "base/bounded_text.h"

#include <algorithm>

namespace ddp::detail {
namespace {

// Bytes of the UTF-8 character at the beginning of `text`, 0 when there is none.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  std::size_t length = 0;
  if (lead < 0x80) length = 1;
  if (lead >= 0xC2 && lead <= 0xDF) length = 2;
  if (lead >= 0xE0 && lead <= 0xEF) length = 3;
  if (lead >= 0xF0 && lead <= 0xF4) length = 4;
  if (length == 0 || length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  // Longer than needed, a surrogate, or above U+10FFFF.
  if ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F)) return 0;
  if ((lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F)) return 0;
  return length;
}

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
  for (; shift >= 0; shift -= 4) append({"0123456789abcdef" + ((number >> shift) & 15), 1});
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
      append({"0123456789abcdef" + (byte >> 4), 1});
      append({"0123456789abcdef" + (byte & 15), 1});
    } else {
      append(text.substr(0, length));
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
}

}  // namespace ddp::detail
