#include "launcher/nodes/control/frames.h"

namespace launcher::control {
namespace {

// Small frames share a buffer of this size, so that thousands of them need no allocation each.
constexpr std::size_t kMaxPartBytes = std::size_t{16} << 10;

constexpr std::size_t kRoundBytes = 4;
constexpr std::size_t kPositionBytes = 8;

enum class FrameKind : std::uint8_t { kMessage, kRelayed, kAcknowledgement };

std::size_t begin(std::string& out, FrameKind kind) {
  return begin_frame(out, static_cast<std::uint8_t>(kind));
}

}  // namespace

void ResendBuffer::add(std::string frames) {
  if (frames.empty()) return;
  size_ += frames.size();
  if (parts_.empty() || parts_.back().size() + frames.size() > kMaxPartBytes) {
    parts_.push_back(std::move(frames));
    return;
  }
  if (is_all_sent()) {
    --current_;
    offset_ = parts_.back().size();
  }
  parts_.back() += frames;
}

std::string_view ResendBuffer::unsent() const {
  return is_all_sent() ? std::string_view() : std::string_view(parts_[current_]).substr(offset_);
}

void ResendBuffer::sent(std::size_t bytes) {
  sent_ += bytes;
  offset_ += bytes;
  if (offset_ < parts_[current_].size()) return;
  ++current_;
  offset_ = 0;
}

bool ResendBuffer::acknowledge(std::uint64_t position) {
  if (position > sent_) return false;
  if (position <= acknowledged_) return true;  // an older acknowledgement
  acknowledged_ = position;
  while (current_ > 0 && begin_ + parts_.front().size() <= position) {
    begin_ += parts_.front().size();
    size_ -= parts_.front().size();
    parts_.pop_front();
    --current_;
  }
  return true;
}

bool ResendBuffer::rewind(std::uint64_t position) {
  if (!can_rewind(position) || !acknowledge(position)) return false;
  current_ = 0;
  offset_ = static_cast<std::size_t>(position - begin_);
  sent_ = position;
  return true;
}

std::string to_frame(std::string_view message) {
  std::string bytes;
  begin(bytes, FrameKind::kMessage);
  bytes += message;
  end_frame(bytes, 0);
  return bytes;
}

std::string acknowledgement(std::uint64_t received) {
  std::string bytes;
  begin(bytes, FrameKind::kAcknowledgement);
  append_integer(bytes, received);
  end_frame(bytes, 0);
  return bytes;
}

FrameBuilder::FrameBuilder(std::uint32_t round) : round_(round) {
  begin(frame_, FrameKind::kRelayed);
  append_integer(frame_, round);
}

std::size_t FrameBuilder::content_size() const {
  return frame_.size() - kFrameHeadBytes - kRoundBytes;
}

void FrameBuilder::fill(std::string_view& bytes) {
  const std::string_view taken = bytes.substr(0, kMaxCarriedBytes - content_size());
  bytes.remove_prefix(taken.size());
  frame_.append(taken);
}

std::string FrameBuilder::take_frame() {
  end_frame(frame_, 0);
  return std::move(frame_);
}

std::optional<ContentSizes> FrameFormat::sizes_of(std::uint8_t kind) {
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::kMessage:
      return ContentSizes{0, kMaxMessageBytes};
    case FrameKind::kRelayed:
      return ContentSizes{kRoundBytes, kRoundBytes + kMaxCarriedBytes};
    case FrameKind::kAcknowledgement:
      return ContentSizes{kPositionBytes, kPositionBytes};
  }
  return std::nullopt;
}

Arrival FrameFormat::frame(std::uint8_t kind, std::string_view content) {
  Arrival arrival{.size = kFrameHeadBytes + content.size()};
  if (static_cast<FrameKind>(kind) == FrameKind::kAcknowledgement) {
    arrival.acknowledged = read_integer<std::uint64_t>(content);
    return arrival;
  }
  if (static_cast<FrameKind>(kind) == FrameKind::kRelayed) {
    arrival.round = read_integer<std::uint32_t>(content);
    content.remove_prefix(kRoundBytes);
  }
  arrival.bytes = content;
  return arrival;
}

}  // namespace launcher::control
