#include "launcher/nodes/store/channel_link.h"

#include <utility>

#include "launcher/nodes/store/wire_format.h"

namespace launcher::store {
namespace {

constexpr std::size_t kHeaderBytes = 1 + 4 + 4;
// Bytes that were read, and are worth moving the rest for.
constexpr std::size_t kForgetFrom = std::size_t{64} << 10;

}  // namespace

void append_frame(std::string& out, FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number) {
  out.push_back(static_cast<char>(kind));
  append_integer(out, channel);
  append_integer(out, kind == FrameKind::kData ? static_cast<std::uint32_t>(bytes.size()) : number);
  out.append(bytes);
}

void FrameReader::feed(std::string_view bytes) {
  if (is_broken_) return;
  if (position_ == buffer_.size() || position_ > kForgetFrom) {
    buffer_.erase(0, position_);
    position_ = 0;
  }
  buffer_.append(bytes);
}

std::optional<Frame> FrameReader::next() {
  const std::string_view unread = std::string_view(buffer_).substr(position_);
  if (is_broken_ || unread.size() < kHeaderBytes) return std::nullopt;
  Frame frame{.kind = static_cast<FrameKind>(unread[0]),
              .channel = read_integer<std::uint32_t>(unread.substr(1)),
              .number = read_integer<std::uint32_t>(unread.substr(5))};
  const bool is_data = frame.kind == FrameKind::kData;
  const bool is_taken = frame.kind == FrameKind::kTaken;
  if (frame.kind > FrameKind::kTaken || (is_data && frame.number > kMaxFrameBytes) ||
      (!is_data && !is_taken && frame.number != 0)) {
    is_broken_ = true;
    buffer_.clear();
    buffer_.shrink_to_fit();
    position_ = 0;
    return std::nullopt;
  }
  const std::size_t size = is_data ? frame.number : 0;
  if (unread.size() < kHeaderBytes + size) return std::nullopt;
  frame.bytes = unread.substr(kHeaderBytes, size);
  position_ += kHeaderBytes + size;
  return frame;
}

ChannelLink::ChannelLink(std::shared_ptr<StoreChannel> store_channel, Callbacks callbacks)
    : store_channel_(std::move(store_channel)), callbacks_(std::move(callbacks)) {}

void ChannelLink::send(FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number) {
  if (!store_channel_->send) return;
  frame_.clear();
  append_frame(frame_, kind, channel, bytes, number);
  store_channel_->send(frame_);
}

void ChannelLink::flush() {
  if (store_channel_->flush) store_channel_->flush();
}

void ChannelLink::deliver(std::string_view bytes) {
  const std::shared_ptr<bool> is_alive = is_alive_;
  incoming_.feed(bytes);
  while (auto frame = incoming_.next()) {
    callbacks_.on_frame(*frame);
    if (!*is_alive) return;
  }
  if (incoming_.is_broken()) {
    const auto on_broken = callbacks_.on_broken;  // it may destroy the link
    on_broken();
    return;
  }
  callbacks_.on_delivered();
  if (*is_alive) flush();
}

}  // namespace launcher::store
