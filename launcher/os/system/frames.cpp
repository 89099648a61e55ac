#include "launcher/os/system/frames.h"

#include <utility>

namespace launcher {
namespace {

constexpr std::size_t kSizeBytes = 4;
// The memory of an empty buffer is freed if it is larger than this.
constexpr std::size_t kKeptBytes = std::size_t{4} << 10;

}  // namespace

std::size_t begin_frame(std::string& out, std::uint8_t kind) {
  const std::size_t begin = out.size();
  append_integer(out, std::uint32_t{0});
  append_integer(out, kind);
  return begin;
}

void end_frame(std::string& out, std::size_t begin) {
  std::string size;
  append_integer(size, static_cast<std::uint32_t>(out.size() - begin - kFrameHeadBytes));
  out.replace(begin, kSizeBytes, size);
}

void FrameBuffer::discard_read() {
  buffer_.erase(0, std::exchange(begin_, 0));
  if (buffer_.empty() && buffer_.capacity() > kKeptBytes) buffer_ = {};
}

void FrameBuffer::feed(std::string_view bytes) {
  if (is_broken_) return;
  discard_read();
  buffer_ += bytes;
}

std::optional<FrameBuffer::Frame> FrameBuffer::next(std::optional<ContentSizes> (*sizes_of)(std::uint8_t kind)) {
  const std::string_view left = std::string_view(buffer_).substr(begin_);
  if (is_broken_ || left.size() < kSizeBytes) {
    discard_read();
    return std::nullopt;
  }
  const std::size_t size = read_integer<std::uint32_t>(left);
  is_broken_ = size > kMaxContentBytes;
  if (!is_broken_ && left.size() >= kFrameHeadBytes) {
    const auto kind = read_integer<std::uint8_t>(left.substr(kSizeBytes));
    const auto sizes = sizes_of(kind);
    is_broken_ = !sizes || size < sizes->least || size > sizes->most;
    if (!is_broken_ && left.size() >= kFrameHeadBytes + size) {
      begin_ += kFrameHeadBytes + size;
      return Frame{kind, left.substr(kFrameHeadBytes, size)};
    }
  }
  if (is_broken_) begin_ = buffer_.size();
  discard_read();
  return std::nullopt;
}

std::string FrameBuffer::take_rest() {
  return std::exchange(buffer_, {}).substr(std::exchange(begin_, 0));
}

}  // namespace launcher
