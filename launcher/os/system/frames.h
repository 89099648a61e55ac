// Frames in a stream of bytes between two ddpruns: the size of the content (u32), its kind (one byte), and the content.
// Each connection has its own kinds and contents. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/little_endian.h"

namespace launcher {

using ddp::detail::append_integer;
using ddp::detail::read_integer;

inline constexpr std::size_t kFrameHeadBytes = 5;
// The limit for the content of any kind: more than any arguments and environment that a kernel accepts.
inline constexpr std::size_t kMaxContentBytes = std::size_t{64} << 20;

// Begins a frame at the end of `out`; the bytes that are appended until end_frame() are its content. Returns its
// position.
std::size_t begin_frame(std::string& out, std::uint8_t kind);
void end_frame(std::string& out, std::size_t begin);

// The sizes that the content of a kind may have.
struct ContentSizes {
  std::size_t least = 0;
  std::size_t most = 0;
};

// The received bytes of such a stream. It is strict: it fails permanently at the first frame that the other end cannot
// have sent, as soon as the frame's header has arrived.
class FrameBuffer {
 public:
  struct Frame {
    std::uint8_t kind = 0;
    std::string_view content{};  // valid until the next call
  };
  void feed(std::string_view bytes);
  // Returns the next complete frame. `sizes_of` returns nothing for an unknown kind.
  std::optional<Frame> next(std::optional<ContentSizes> (*sizes_of)(std::uint8_t kind));
  bool is_broken() const { return is_broken_; }
  // Returns the bytes that next() has not returned, and removes them.
  std::string take_rest();

 private:
  void discard_read();

  std::string buffer_;
  std::size_t begin_ = 0;  // the position of the next frame
  bool is_broken_ = false;
};

// Reads frames of one kind of connection: with Format::sizes_of(kind), and Format::frame(kind, content) for a content
// of such a size.
template <typename Format>
class FormatReader {
 public:
  void feed(std::string_view bytes) { buffer_.feed(bytes); }
  auto next() {
    const auto frame = buffer_.next(&Format::sizes_of);
    return frame ? std::optional(Format::frame(frame->kind, frame->content)) : std::nullopt;
  }
  bool is_broken() const { return buffer_.is_broken(); }
  std::string take_rest() { return buffer_.take_rest(); }

 private:
  FrameBuffer buffer_;
};

}  // namespace launcher
