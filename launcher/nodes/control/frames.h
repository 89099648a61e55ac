// The frames between two launchers, in one stream of bytes. A frame has a message, or carried bytes with the number of
// their round, or an acknowledgement of received bytes. Pure.
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
  // Adds whole frames after all earlier ones.
  void add(std::string frames);
  // Returns the next bytes to send; empty when all were sent. They may be a part of what was added.
  std::string_view unsent() const;
  void sent(std::size_t bytes);
  // The other end has received all bytes before `position`, so they are removed. Returns false when that is impossible.
  [[nodiscard]] bool acknowledge(std::uint64_t position);
  // Acknowledges, and marks all later bytes as not sent, because bytes on their way were lost.
  [[nodiscard]] bool rewind(std::uint64_t position);
  // Whether rewind(position) would succeed.
  bool can_rewind(std::uint64_t position) const { return position >= acknowledged_ && position <= sent_; }

  bool is_all_sent() const { return current_ == parts_.size(); }
  // The number of bytes that the other end has not acknowledged, sent or not.
  std::size_t size() const { return size_; }
  std::uint64_t acknowledged() const { return acknowledged_; }

 private:
  std::deque<std::string> parts_;
  std::size_t current_ = 0;         // the part that is sent next
  std::size_t offset_ = 0;          // the position in this part
  std::uint64_t begin_ = 0;         // the position of the first part
  std::uint64_t sent_ = 0;          // the position of what is sent next
  std::uint64_t acknowledged_ = 0;  // perhaps within the first part
  std::size_t size_ = 0;            // of all parts
};

// Longer than any message that a launcher sends.
inline constexpr std::size_t kMaxMessageBytes = std::size_t{64} << 10;

// A message waits for at most one frame of carried bytes of this size.
inline constexpr std::size_t kMaxCarriedBytes = std::size_t{16} << 10;

// Returns `message` as a frame. It must not be longer than kMaxMessageBytes.
std::string to_frame(std::string_view message);
std::string acknowledgement(std::uint64_t received);

// A frame that is filled with carried bytes.
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
  std::string bytes{};                                       // the message, or the carried bytes
  std::optional<std::uint32_t> round = std::nullopt;         // for carried bytes: their round
  std::optional<std::uint64_t> acknowledged = std::nullopt;  // for an acknowledgement, which has no bytes
  std::size_t size = 0;                                      // the size of the whole frame
};

struct FrameFormat {
  static std::optional<ContentSizes> sizes_of(std::uint8_t kind);
  static Arrival frame(std::uint8_t kind, std::string_view content);
};
using FrameReader = FormatReader<FrameFormat>;

}  // namespace launcher::control
