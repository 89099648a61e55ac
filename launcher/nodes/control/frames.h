// The frames that pass between two launchers, in one stream of bytes: messages, what the connection carries for others,
// with the round that it belongs to, and acknowledgements of so many bytes of whole frames. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/os/system/frames.h"

namespace launcher::control {

class ResendBuffer {
 public:
  // Whole frames, which follow all that was added before.
  void add(std::string frames);
  // The next bytes to send; empty when all were sent. They may be the rest of what was added at once.
  std::string_view unsent() const;
  void sent(std::size_t bytes);
  // The other end has received all before `position`, which is forgotten. False when that cannot be.
  [[nodiscard]] bool acknowledge(std::uint64_t position);
  // The same, and all that follows is to be sent again: what was on its way is lost.
  [[nodiscard]] bool rewind(std::uint64_t position);
  // rewind(position) would succeed.
  bool can_rewind(std::uint64_t position) const { return position >= acknowledged_ && position <= sent_; }

  bool is_all_sent() const { return current_ == parts_.size(); }
  // Bytes that the other end has not acknowledged, sent or not.
  std::size_t size() const { return size_; }
  std::uint64_t acknowledged() const { return acknowledged_; }

 private:
  std::deque<std::string> parts_;
  std::size_t current_ = 0;         // the part that is sent next
  std::size_t offset_ = 0;          // in it
  std::uint64_t begin_ = 0;         // the position of the first part
  std::uint64_t sent_ = 0;          // the position of what is sent next
  std::uint64_t acknowledged_ = 0;  // perhaps within the first part
  std::size_t size_ = 0;            // of all parts
};

// Longer than any message that a launcher sends.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;

// A message waits for one frame of what is carried at most.
inline constexpr std::size_t kMaxCarriedBytes = std::size_t{16} << 10;

// `message` as it is sent. It must not be longer than kMaxMessageBytes.
std::string to_frame(std::string_view message);
std::string acknowledgement(std::uint64_t received);

// A frame that is filled with what is carried.
class FrameBuilder {
 public:
  explicit FrameBuilder(std::uint32_t round);
  std::uint32_t round() const { return round_; }
  // Moves as many of the first bytes of `bytes` into the frame as it has space for.
  void fill(std::string_view& bytes);
  std::size_t content_size() const;
  bool is_full() const { return content_size() == kMaxCarriedBytes; }
  std::string take_frame();

 private:
  std::uint32_t round_;
  std::string frame_;
};

struct Arrival {
  std::string bytes{};                                       // of the message, or carried
  std::optional<std::uint32_t> round = std::nullopt;         // of what is carried
  std::optional<std::uint64_t> acknowledged = std::nullopt;  // of an acknowledgement, which has no bytes
  std::size_t size = 0;                                      // of the whole frame
};

struct FrameFormat {
  static std::optional<ContentSizes> sizes_of(std::uint8_t kind);
  static Arrival frame(std::uint8_t kind, std::string_view content);
};
using FrameReader = FormatReader<FrameFormat>;

}  // namespace launcher::control
