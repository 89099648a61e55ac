// One end of what two launchers say to each other: whole messages each way, and what is carried for others, which never
// delays a message for long. All of it is a session, which may outlive its connection: after an interruption of the
// network it continues with a new one, and nothing is lost or comes twice.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/frames.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::control {

// Stands in the place of a round's number for what belongs to the side channel (os/network/side_channel.h).
inline constexpr std::uint32_t kSideRound = std::uint32_t{1} << 30;

class ControlLink {
 public:
  struct Callbacks {
    std::function<void(const Message&)> on_message{};
    // Anything was received, even a part of a frame.
    std::function<void()> on_sign_of_life{};
    // Of what it carries for others, in order.
    std::function<void(std::uint32_t round, std::string_view bytes)> on_carried{};
    // has_room() is true again.
    std::function<void()> on_room{};
    // The session has ended: the other end closed the connection, or what arrived was not a message. Nothing is called
    // after that.
    std::function<void(const std::string& reason)> on_closed{};
    // The connection is lost. Returns whether the session waits for another one, else on_closed follows. May be null:
    // it never waits. `is_network`: the network lost it; else the other end closed it.
    std::function<bool(bool is_network)> on_disconnected{};
  };
  // `fd` is connected and does not block; without one, resume() is due. `loop` must outlive the link. A callback may
  // destroy the link.
  ControlLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks);
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // What cannot be sent at once is sent later; after the end of the session, never.
  void send(const Message& message);
  // The same, for what to_frame() has made of a message: what goes to thousands is written once.
  void send_frame(const std::string& frame);
  // For others; goes after all messages, at the next flush() at the latest.
  void carry(std::uint32_t round, std::string_view bytes);
  void flush();
  // Reports the number of received bytes with the next message. Needed at intervals only.
  void acknowledge();
  // Whether more should be carried; on_room follows a "no".
  bool has_room() const { return carried_bytes_ < kMaxCarried && sent_.size() < kMaxUnacknowledged; }
  // What is carried and was not given to the kernel yet, in bytes; and whether the kernel has all that was sent and
  // carried.
  std::size_t carried() const { return carried_bytes_; }
  bool is_idle() const { return sent_.is_all_sent() && outgoing_.empty() && carried_.empty(); }
  // "10.0.0.7 port 4711", where the other end is.
  std::string peer() const;
  // Ends the session; on_closed is not called.
  void break_off();
  bool is_open() const { return !is_over_; }

  bool is_connected() const { return static_cast<bool>(fd_); }
  // Gives the connection away; the session waits for another one. What was read of it already is in take_rest().
  UniqueFd release();
  std::string take_rest() { return incoming_.take_rest(); }
  // Continues with a new connection, whose other end has received `position` bytes of the session, and of which `rest`
  // was read already. False, and nothing has changed, when that cannot be. Callbacks may be called at once.
  bool resume(UniqueFd fd, std::uint64_t position, std::string_view rest = {});
  bool can_resume(std::uint64_t position) const { return !is_over_ && sent_.can_rewind(position); }
  // How many bytes of whole frames have been received in the session, and how many sent ones were acknowledged.
  std::uint64_t received() const { return received_; }
  std::uint64_t acknowledged() const { return sent_.acknowledged(); }
  // The kernel has sent data several times for at least this time, and the other end has acknowledged nothing.
  bool is_stalled(std::chrono::steady_clock::time_point now, std::chrono::milliseconds time) const;
  // More messages wait than a launcher that takes any would leave: some of them were dropped.
  bool has_overflowed() const { return has_overflowed_; }

 private:
  static constexpr std::size_t kMaxCarried = std::size_t{256} << 10;
  static constexpr std::size_t kMaxUnacknowledged = std::size_t{2} << 20;

  void watch();
  void write_all();
  bool take_next();
  void update_interest();
  void offer_room();
  void on_event(std::uint32_t events);
  void receive();
  void handle_arrivals();
  bool handle(const Arrival& arrival);
  void disconnect(bool is_network, const std::string& reason);
  void close(const std::string& reason);

  EventLoop& loop_;
  UniqueFd fd_;
  Callbacks callbacks_;
  FrameReader incoming_;
  std::uint64_t received_ = 0;
  std::uint64_t announced_ = 0;  // of these, to the other end
  ResendBuffer sent_;
  std::chrono::steady_clock::time_point progress_{};  // when the other end last acknowledged, or had nothing to
  std::string outgoing_;                              // messages that follow what is in sent_
  std::deque<FrameBuilder> carried_;                  // what follows those
  std::size_t carried_bytes_ = 0;                     // in them
  bool was_full_ = false;
  bool waits_to_write_ = false;
  bool is_over_ = false;
  bool has_overflowed_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::control
