// One connection between two launchers: whole messages each way, and its end as an event.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "launcher/control/control_messages.h"
#include "launcher/control/frames.h"
#include "launcher/system/event_loop.h"
#include "launcher/system/unique_fd.h"

namespace launcher::control {

class ControlLink {
 public:
  struct Callbacks {
    std::function<void(const Message&)> on_message{};
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
  // Ends it; on_closed is not called.
  void break_off();
  bool is_open() const { return static_cast<bool>(fd_); }
  // What was sent and is not acknowledged for so long breaks the connection.
  void set_patience(std::chrono::milliseconds patience);

 private:
  void on_event(std::uint32_t events);
  void receive();
  void deliver();
  void flush();
  void close(const std::string& reason);

  EventLoop& loop_;
  UniqueFd fd_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::string outgoing_;
  bool waits_for_room_ = false;                                    // to send it
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::control
