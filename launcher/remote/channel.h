// Frames in both directions on two non-blocking descriptors. The users limit the bytes that wait to be sent: output by
// the windows; everything else is small.
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
    // Examines the bytes before the first frame. Returns how many of them do not belong to frames, or npos while that
    // is unknown. Unset: there are only frames.
    std::function<std::size_t(std::string_view)> on_preamble{};
    std::function<void(Frame)> on_frame;
    // The other end is gone, or has sent something that is not a frame. Called once.
    std::function<void()> on_end;
  };

  Channel(EventLoop& loop, UniqueFd reader, UniqueFd writer, Callbacks callbacks);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void send(const Frame& frame) { send_bytes(to_bytes(frame)); }
  void send_bytes(std::string_view bytes);
  // Closes this direction after all bytes were sent, so that the other end sees the end of the stream.
  void finish_sending();
  // When bytes last arrived.
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
