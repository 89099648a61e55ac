// One end of the connection between a store proxy and the store: whole frames each way, and its end as an event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/store/channel_frames.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/unique_fd.h"

namespace launcher::store {

class ChannelLink {
 public:
  struct Callbacks {
    std::function<void(Frame)> on_frame{};
    // All frames that came together were delivered.
    std::function<void()> on_delivered{};
    // has_room() is true again.
    std::function<void()> on_room{};
    // It is over, by the other end or because what came is no frame; nothing is called after that.
    std::function<void()> on_closed{};
  };
  // `fd` is connected and does not block. `loop` must outlive the link. A callback may destroy the link.
  ChannelLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks);
  ~ChannelLink();
  ChannelLink(const ChannelLink&) = delete;
  ChannelLink& operator=(const ChannelLink&) = delete;

  // As if they came through the connection.
  void deliver(std::string_view bytes);
  // Frames go together, at the next flush().
  void send(FrameKind kind, Channel channel, std::string_view bytes = {}, std::uint32_t number = 0);
  void send_raw(std::string_view bytes) { outgoing_ += bytes; }
  void flush();
  // Whether data should be sent; other frames are few, and always can be.
  bool has_room() const { return outgoing_.size() - sent_ < kMaxOutgoing; }
  // What has not been sent.
  std::size_t held_bytes() const { return outgoing_.capacity(); }
  int fd() const { return fd_.get(); }

 private:
  static constexpr std::size_t kMaxOutgoing = std::size_t{512} << 10;

  void on_event(std::uint32_t events);
  void receive();
  void close();

  EventLoop& loop_;
  UniqueFd fd_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::string outgoing_;
  std::size_t sent_ = 0;  // of it
  bool is_watched_for_room_ = false;
  bool had_no_room_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::store
