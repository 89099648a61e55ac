// One end of what a store proxy and the store say to each other: whole frames each way. No sockets.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/nodes/store/carrier.h"
#include "launcher/nodes/store/channel_frames.h"

namespace launcher::store {

class ChannelLink {
 public:
  struct Callbacks {
    std::function<void(const Frame&)> on_frame{};
    // All frames that came together were delivered.
    std::function<void()> on_delivered{};
    // What came is no frame; nothing is called after that.
    std::function<void()> on_broken{};
  };
  // Sends by `carrier`, whose receiving side is the caller's. A callback may destroy the link.
  ChannelLink(std::shared_ptr<Carrier> carrier, Callbacks callbacks);
  ~ChannelLink() { *is_alive_ = false; }
  ChannelLink(const ChannelLink&) = delete;
  ChannelLink& operator=(const ChannelLink&) = delete;

  // What has come.
  void deliver(std::string_view bytes);
  // Frames go together, at the next flush().
  void send(FrameKind kind, Channel channel, std::string_view bytes = {}, std::uint32_t number = 0);
  void flush();
  // Whether data should be sent; other frames are few, and always can be.
  bool has_room() const { return !carrier_->has_room || carrier_->has_room(); }

 private:
  std::shared_ptr<Carrier> carrier_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::string frame_;                                              // that is being made
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::store
