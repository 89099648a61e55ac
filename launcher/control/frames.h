// Messages on a stream of bytes: each is its length, a u32 in little endian, and that many bytes. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace launcher::control {

// Longer than any message that a launcher sends.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;

// `message` as it goes on the wire. It must not be longer than kMaxMessageBytes.
std::string to_frame(std::string_view message);

class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }
  // The next message that is whole; nothing when there is none, or when the stream is none of ours.
  std::optional<std::string> next();
  // A length was announced that no launcher sends.
  bool is_broken() const { return is_broken_; }

 private:
  std::string buffer_;
  bool is_broken_ = false;
};

}  // namespace launcher::control
