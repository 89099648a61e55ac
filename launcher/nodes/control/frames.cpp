#include "launcher/nodes/control/frames.h"

namespace launcher::control {
namespace {

// Small frames share a part, so that thousands of them take no memory of their own each.
constexpr std::size_t kMostInPart = std::size_t{16} << 10;

constexpr std::size_t kNumberBytes = 4;
constexpr std::uint32_t kIsPiece = std::uint32_t{1} << 31;
constexpr std::uint32_t kIsAcknowledgement = std::uint32_t{1} << 30;
constexpr std::size_t kPositionBytes = 8;
// An empty buffer of a connection that was busy is given back above this.
constexpr std::size_t kKeptFrameBytes = std::size_t{4} << 10;

void write_number(std::string& bytes, std::size_t at, std::uint32_t number) {
  for (std::size_t i = 0; i < kNumberBytes; ++i) bytes[at + i] = static_cast<char>((number >> (8 * i)) & 0xff);
}

std::uint32_t read_number(std::string_view bytes) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < kNumberBytes; ++i) {
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return number;
}

std::size_t longest(std::uint32_t first) {
  if ((first & kIsPiece) != 0) return kMaxPieceBytes;
  return (first & kIsAcknowledgement) != 0 ? kPositionBytes : kMaxMessageBytes;
}

}  // namespace

void ResendBuffer::add(std::string frames) {
  if (frames.empty()) return;
  size_ += frames.size();
  if (parts_.empty() || parts_.back().size() + frames.size() > kMostInPart) {
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
  if (position <= acknowledged_) return true;  // an older one
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
  std::string bytes(kNumberBytes, '\0');
  write_number(bytes, 0, static_cast<std::uint32_t>(message.size()));
  return bytes.append(message);
}

std::string acknowledgement(std::uint64_t received) {
  std::string bytes(kNumberBytes + kPositionBytes, '\0');
  write_number(bytes, 0, kIsAcknowledgement | std::uint32_t{kPositionBytes});
  write_number(bytes, kNumberBytes, static_cast<std::uint32_t>(received));
  write_number(bytes, 2 * kNumberBytes, static_cast<std::uint32_t>(received >> 32));
  return bytes;
}

Piece::Piece(std::uint32_t round) : round_(round), frame_(2 * kNumberBytes, '\0') {
  write_number(frame_, 0, kIsPiece);
  write_number(frame_, kNumberBytes, round);
}

std::size_t Piece::content_size() const {
  return frame_.size() - 2 * kNumberBytes;
}

void Piece::fill(std::string_view& bytes) {
  const std::string_view taken = bytes.substr(0, kMaxPieceBytes - content_size());
  bytes.remove_prefix(taken.size());
  frame_.append(taken);
  write_number(frame_, 0, kIsPiece | static_cast<std::uint32_t>(content_size()));
}

std::optional<Arrival> FrameReader::next() {
  if (is_broken_ || buffer_.size() < kNumberBytes) return std::nullopt;
  const std::uint32_t first = read_number(buffer_);
  const bool is_piece = (first & kIsPiece) != 0;
  const bool is_acknowledgement = !is_piece && (first & kIsAcknowledgement) != 0;
  const std::size_t length = first & ~(is_piece ? kIsPiece : kIsAcknowledgement);
  const std::size_t header = is_piece ? 2 * kNumberBytes : kNumberBytes;
  if (length > longest(first) || (is_acknowledgement && length != kPositionBytes)) {
    is_broken_ = true;
    return std::nullopt;
  }
  if (buffer_.size() < header + length) return std::nullopt;
  Arrival arrival{.bytes = buffer_.substr(header, length), .size = header + length};
  if (is_piece) arrival.round = read_number(std::string_view(buffer_).substr(kNumberBytes));
  if (is_acknowledgement) {
    const std::uint64_t high = read_number(std::string_view(arrival.bytes).substr(kNumberBytes));
    arrival.acknowledged = (high << 32) | read_number(arrival.bytes);
    arrival.bytes.clear();
  }
  buffer_.erase(0, header + length);
  if (buffer_.empty() && buffer_.capacity() > kKeptFrameBytes) buffer_ = {};
  return arrival;
}

}  // namespace launcher::control
