// One end of the connection between a store proxy and the store. It transfers whole frames in both directions. No
// sockets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "launcher/nodes/store/store_channel.h"
#include "launcher/os/system/frames.h"

namespace launcher::store {

// The most bytes of a channel in one direction that the receiver has not acknowledged with kTaken.
inline constexpr std::size_t kChannelWindow = std::size_t{256} << 10;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 10;

using Channel = std::uint32_t;  // never used twice on a connection

enum class FrameKind : std::uint8_t {
  kOpen = 0,   // sent by the proxy when a client has connected
  kData = 1,   // bytes of the client, or for it
  kClose = 2,  // sent once by either end; no frame of this channel follows
  kTaken = 3,  // acknowledges bytes of the channel
};

struct Frame {
  FrameKind kind{};
  Channel channel = 0;
  std::uint32_t number = 0;  // for kTaken: the number of bytes
  std::string bytes{};       // for kData
};

// `bytes`, at most kMaxFrameBytes, are for kData; `number` is for kTaken.
void append_frame(std::string& out, FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number = 0);

// The content of a frame: the channel, and the data of its kind.
struct FrameFormat {
  static std::optional<ContentSizes> sizes_of(std::uint8_t kind);
  static Frame frame(std::uint8_t kind, std::string_view content);
};
using FrameReader = FormatReader<FrameFormat>;

// Flow control of one direction of a channel, at the sender.
class SendWindow {
 public:
  std::size_t room() const { return room_; }
  void sent(std::size_t bytes) { room_ -= bytes; }
  // Returns false when more bytes were acknowledged than sent: the other end is not a launcher.
  [[nodiscard]] bool taken(std::size_t bytes) {
    if (bytes > kChannelWindow - room_) return false;
    room_ += bytes;
    return true;
  }

 private:
  std::size_t room_ = kChannelWindow;
};

// Flow control of one direction of a channel, at the receiver.
class ReceiveWindow {
 public:
  // Returns false when more bytes arrived than the window allows.
  [[nodiscard]] bool received(std::size_t bytes) {
    held_ += bytes;
    return held_ + taken_ <= kChannelWindow;
  }
  void taken(std::size_t bytes) {
    held_ -= bytes;
    taken_ += bytes;
  }
  std::size_t held() const { return held_; }
  // The number of bytes to acknowledge now; 0 when that can wait. Small exchanges need no acknowledgements.
  std::uint32_t announcement() {
    if (taken_ < kChannelWindow / 4) return 0;
    const auto announced = static_cast<std::uint32_t>(taken_);
    taken_ = 0;
    return announced;
  }

 private:
  std::size_t held_ = 0;   // received, but not taken yet
  std::size_t taken_ = 0;  // taken, but not acknowledged yet
};

class ChannelLink {
 public:
  struct Callbacks {
    std::function<void(const Frame&)> on_frame{};
    // Called when all frames that arrived together were delivered.
    std::function<void()> on_delivered{};
    // Called when the received bytes are not a frame. No callback is called after that.
    std::function<void()> on_broken{};
  };
  // Sends through `store_channel`. Its receiving side belongs to the caller. A callback may destroy the link.
  ChannelLink(std::shared_ptr<StoreChannel> store_channel, Callbacks callbacks);
  ~ChannelLink() { *is_alive_ = false; }
  ChannelLink(const ChannelLink&) = delete;
  ChannelLink& operator=(const ChannelLink&) = delete;

  void on_received(std::string_view bytes);
  // Adds a frame; frames are sent together at the next flush().
  void send(FrameKind kind, Channel channel, std::string_view bytes = {}, std::uint32_t number = 0);
  void flush();
  // Whether data should be sent. Other frames are few and can always be sent.
  bool has_room() const { return !store_channel_->has_room || store_channel_->has_room(); }

 private:
  std::shared_ptr<StoreChannel> store_channel_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::string frame_;                                              // the frame that is being received
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::store
