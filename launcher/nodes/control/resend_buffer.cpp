#include "launcher/nodes/control/resend_buffer.h"

#include <utility>

namespace launcher::control {
namespace {

// Small frames share a part, so that thousands of them take no memory of their own each.
constexpr std::size_t kMostInPart = std::size_t{16} << 10;

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

}  // namespace launcher::control
