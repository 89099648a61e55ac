// One end of what a store proxy and the store say to each other: whole frames each way. No sockets.
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

// Bytes of a channel, each way, that the receiver has not announced as taken.
inline constexpr std::size_t kChannelWindow = std::size_t{256} << 10;
inline constexpr std::size_t kMaxFrameBytes = std::size_t{64} << 10;

using Channel = std::uint32_t;  // never used twice on a connection

enum class FrameKind : std::uint8_t {
  kOpen = 0,   // by the proxy: a client has arrived
  kData = 1,   // of the client, or for it
  kClose = 2,  // by either end, once; nothing of the channel follows
  kTaken = 3,  // so many bytes of the channel were taken
};

struct Frame {
  FrameKind kind{};
  Channel channel = 0;
  std::uint32_t number = 0;  // of kTaken: how many
  std::string bytes{};       // of kData
};

// `bytes`, at most kMaxFrameBytes, are for kData; `number` for kTaken.
void append_frame(std::string& out, FrameKind kind, Channel channel, std::string_view bytes, std::uint32_t number = 0);

// The content of a frame: the channel, and what belongs to its kind.
struct FrameFormat {
  static std::optional<ContentSizes> sizes_of(std::uint8_t kind);
  static Frame frame(std::uint8_t kind, std::string_view content);
};
using FrameReader = FormatReader<FrameFormat>;

// One direction of a channel, at the end that sends.
class SendWindow {
 public:
  std::size_t room() const { return room_; }
  void sent(std::size_t bytes) { room_ -= bytes; }
  // False when more was announced as taken than was sent: the other end is not a launcher.
  [[nodiscard]] bool taken(std::size_t bytes) {
    if (bytes > kChannelWindow - room_) return false;
    room_ += bytes;
    return true;
  }

 private:
  std::size_t room_ = kChannelWindow;
};

// The same at the end that receives.
class ReceiveWindow {
 public:
  // False when more came than the window allows.
  [[nodiscard]] bool received(std::size_t bytes) {
    held_ += bytes;
    return held_ + taken_ <= kChannelWindow;
  }
  void taken(std::size_t bytes) {
    held_ -= bytes;
    taken_ += bytes;
  }
  std::size_t held() const { return held_; }
  // What to announce now, 0 when it can wait: small exchanges need no announcements.
  std::uint32_t announcement() {
    if (taken_ < kChannelWindow / 4) return 0;
    const auto announced = static_cast<std::uint32_t>(taken_);
    taken_ = 0;
    return announced;
  }

 private:
  std::size_t held_ = 0;   // received, and not taken
  std::size_t taken_ = 0;  // and not announced
};

class ChannelLink {
 public:
  struct Callbacks {
    std::function<void(const Frame&)> on_frame{};
    // All frames that came together were delivered.
    std::function<void()> on_delivered{};
    // What came is not a frame; nothing is called after that.
    std::function<void()> on_broken{};
  };
  // Sends by `store_channel`, whose receiving side is the caller's. A callback may destroy the link.
  ChannelLink(std::shared_ptr<StoreChannel> store_channel, Callbacks callbacks);
  ~ChannelLink() { *is_alive_ = false; }
  ChannelLink(const ChannelLink&) = delete;
  ChannelLink& operator=(const ChannelLink&) = delete;

  void on_received(std::string_view bytes);
  // Frames go together, at the next flush().
  void send(FrameKind kind, Channel channel, std::string_view bytes = {}, std::uint32_t number = 0);
  void flush();
  // Whether data should be sent; other frames are few, and always can be.
  bool has_room() const { return !store_channel_->has_room || store_channel_->has_room(); }

 private:
  std::shared_ptr<StoreChannel> store_channel_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::string frame_;                                              // that is being made
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::store
