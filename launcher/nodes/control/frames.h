// The frames that pass between two launchers, in one stream of bytes. A message is its length, a u32 in little endian,
// and that many bytes. A piece of what the connection carries for others has the highest bit of its length set, and the
// round that it belongs to, a u32 too, after the length. An acknowledgement has the next bit set, and a u64: so many
// bytes of whole frames have been received. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace launcher::control {

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
  // The next one that is whole; nothing when there is none, or when the stream is none of ours.
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
