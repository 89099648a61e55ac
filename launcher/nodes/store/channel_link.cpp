#include "launcher/nodes/store/channel_link.h"

#include <utility>

namespace launcher::store {
namespace {

constexpr std::size_t kChannelBytes = 4;
constexpr std::size_t kNumberBytes = 4;

}  // namespace

void append_frame(std::string& out, FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number) {
  const std::size_t begin = begin_frame(out, static_cast<std::uint8_t>(kind));
  append_integer(out, channel);
  if (kind == FrameKind::kTaken) append_integer(out, number);
  out.append(bytes);
  end_frame(out, begin);
}

std::optional<ContentSizes> FrameFormat::sizes_of(std::uint8_t kind) {
  switch (static_cast<FrameKind>(kind)) {
    case FrameKind::kOpen:
    case FrameKind::kClose:
      return ContentSizes{kChannelBytes, kChannelBytes};
    case FrameKind::kData:
      return ContentSizes{kChannelBytes, kChannelBytes + kMaxFrameBytes};
    case FrameKind::kTaken:
      return ContentSizes{kChannelBytes + kNumberBytes, kChannelBytes + kNumberBytes};
  }
  return std::nullopt;
}

Frame FrameFormat::frame(std::uint8_t kind, std::string_view content) {
  Frame frame{.kind = static_cast<FrameKind>(kind), .channel = read_integer<std::uint32_t>(content)};
  const std::string_view rest = content.substr(kChannelBytes);
  if (frame.kind == FrameKind::kTaken) {
    frame.number = read_integer<std::uint32_t>(rest);
  } else {
    frame.bytes = rest;
  }
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

void ChannelLink::on_received(std::string_view bytes) {
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
