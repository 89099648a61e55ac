#include "launcher/control/frames.h"

#include <cstdint>

namespace launcher::control {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

std::string to_frame(std::string_view message) {
  std::string bytes;
  for (std::size_t i = 0; i < kLengthBytes; ++i) bytes.push_back(static_cast<char>((message.size() >> (8 * i)) & 0xff));
  return bytes.append(message);
}

std::optional<std::string> FrameReader::next() {
  if (is_broken_ || buffer_.size() < kLengthBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<std::size_t>(static_cast<unsigned char>(buffer_[i])) << (8 * i);
  }
  if (length > kMaxMessageBytes) {
    is_broken_ = true;
    return std::nullopt;
  }
  if (buffer_.size() < kLengthBytes + length) return std::nullopt;
  std::string message = buffer_.substr(kLengthBytes, length);
  buffer_.erase(0, kLengthBytes + length);
  return message;
}

}  // namespace launcher::control
