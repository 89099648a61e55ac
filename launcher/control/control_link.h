// One connection between two launchers: whole messages each way, and its end as an event; and what it carries for
// others besides, which never holds up a message for long.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/control/control_messages.h"
#include "launcher/control/frames.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/unique_fd.h"

namespace launcher::control {

class ControlLink {
 public:
  struct Callbacks {
    std::function<void(const Message&)> on_message{};
    // Anything came, be it a part of something.
    std::function<void()> on_sign_of_life{};
    // Of what it carries for others, in order.
    std::function<void(std::uint32_t round, std::string_view bytes)> on_carried{};
    // has_room() is true again.
    std::function<void()> on_room{};
    // It is over: the other end closed it, it broke, or what came was no message; nothing is called after that.
    std::function<void(const std::string& reason)> on_closed{};
  };
  // `fd` is connected and does not block. `loop` must outlive the link. A callback may destroy the link.
  ControlLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks);
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // What cannot be sent at once is sent later; after the end of the link, never.
  void send(const Message& message);
  // The same of what to_frame() has made of one: what goes to thousands is written once.
  void send_frame(const std::string& frame);
  // For others; goes behind all messages, at the next flush() at the latest.
  void carry(std::uint32_t round, std::string_view bytes);
  void flush();
  // Whether more should be carried; on_room follows a "no".
  bool has_room() const { return carried_bytes_ < kMaxCarried; }
  // What is carried and not under way yet, in bytes; and whether all that was sent and carried is under way.
  std::size_t carried() const { return carried_bytes_; }
  bool is_idle() const { return written_ == writing_.size() && outgoing_.empty() && carried_.empty(); }
  // "10.0.0.7 port 4711", where the other end is.
  std::string peer() const;
  // Ends it; on_closed is not called.
  void break_off();
  bool is_open() const { return static_cast<bool>(fd_); }
  // What was sent and is not acknowledged for so long, or for seconds, breaks the connection.
  void set_patience(std::chrono::milliseconds patience);

 private:
  static constexpr std::size_t kMaxCarried = std::size_t{256} << 10;

  void on_event(std::uint32_t events);
  void receive();
  void deliver();
  bool take_next();
  void close(const std::string& reason);

  EventLoop& loop_;
  UniqueFd fd_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::string writing_;  // what is on its way: whole frames, of which so much was written
  std::size_t written_ = 0;
  std::string outgoing_;           // messages behind that
  std::deque<Piece> carried_;      // and behind those
  std::size_t carried_bytes_ = 0;  // in them
  bool was_full_ = false;
  bool waits_for_room_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::control
