#include "launcher/nodes/store/channel_link.h"

#include <utility>

namespace launcher::store {

ChannelLink::ChannelLink(std::shared_ptr<Carrier> carrier, Callbacks callbacks)
    : carrier_(std::move(carrier)), callbacks_(std::move(callbacks)) {}

void ChannelLink::send(FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number) {
  if (!carrier_->send) return;
  frame_.clear();
  append_frame(frame_, kind, channel, bytes, number);
  carrier_->send(frame_);
}

void ChannelLink::flush() {
  if (carrier_->flush) carrier_->flush();
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
