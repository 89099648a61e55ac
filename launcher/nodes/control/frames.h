// The frames that pass between two launchers, in one stream of bytes. A message is its length, a u32 in little endian,
// and that many bytes. A piece of what the connection carries for others has the highest bit of its length set, and the
// round that it belongs to, a u32 too, after the length. An acknowledgement has the next bit set, and a u64: so many
// bytes of whole frames have been received. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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

// A message waits for one piece at most.
inline constexpr std::size_t kMaxPieceBytes = std::size_t{16} << 10;

// `message` as it is sent. It must not be longer than kMaxMessageBytes.
std::string to_frame(std::string_view message);
std::string acknowledgement(std::uint64_t received);

// A piece that is being filled, as it is sent.
class Piece {
 public:
  explicit Piece(std::uint32_t round);
  std::uint32_t round() const { return round_; }
  // Takes the beginning of `bytes`, as far as there is room, away from it.
  void fill(std::string_view& bytes);
  std::size_t content_size() const;
  bool is_full() const { return content_size() == kMaxPieceBytes; }
  std::string take_frame() { return std::move(frame_); }

 private:
  std::uint32_t round_;
  std::string frame_;
};

struct Arrival {
  std::string bytes{};                                       // of the message, or of the piece
  std::optional<std::uint32_t> round = std::nullopt;         // of a piece
  std::optional<std::uint64_t> acknowledged = std::nullopt;  // of an acknowledgement, which has no bytes
  std::size_t size = 0;                                      // of the whole frame
};

class FrameReader {
 public:
  void feed(std::string_view bytes) { buffer_ += bytes; }
  // The next one that is whole; nothing when there is none, or when the stream is not from a launcher.
  std::optional<Arrival> next();
  // A length was announced that no launcher sends.
  bool is_broken() const { return is_broken_; }
  // What belongs to frames that next() has not returned, and is forgotten.
  std::string take_rest() { return std::exchange(buffer_, {}); }

 private:
  std::string buffer_;
  bool is_broken_ = false;
};

}  // namespace launcher::control
