// Frames in both directions on two descriptors that do not block. What waits to be sent is bounded by its users: output
// by the windows, everything else is small.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

class Channel {
 public:
  struct Callbacks {
    // Sees the bytes in front of the first frame, returns how many of them are not frames, and npos while it does not
    // know. Unset: frames from the beginning.
    std::function<std::size_t(std::string_view)> on_preamble{};
    std::function<void(Frame)> on_frame;
    // The other end is gone, or what it sends is not a frame. Called once.
    std::function<void()> on_end;
  };

  Channel(EventLoop& loop, UniqueFd reader, UniqueFd writer, Callbacks callbacks);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void send(const Frame& frame) { send_bytes(to_bytes(frame)); }
  void send_bytes(std::string_view bytes);
  // The other end sees the end of the stream, after all that was sent.
  void finish_sending();
  // When anything last came.
  EventLoop::Clock::time_point last_received() const { return last_received_; }

 private:
  void read();
  void take(std::string_view bytes);
  void write();
  void watch_writer(bool on);
  void stop_reading();

  EventLoop& loop_;
  UniqueFd reader_;
  UniqueFd writer_;
  Callbacks callbacks_;
  std::string preamble_;
  FrameReader frames_;
  std::string waiting_;
  std::size_t written_ = 0;
  bool is_writer_watched_ = false;
  bool is_finishing_ = false;
  EventLoop::Clock::time_point last_received_ = EventLoop::Clock::now();
};

}  // namespace launcher::remote
