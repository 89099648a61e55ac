// One end of the connection between two launchers. It transfers whole messages in both directions, and carries bytes
// for others, which never delay a message for long. Both belong to a session, which may last longer than its
// connection: after an interruption of the network it continues with a new one, and every byte is delivered exactly
// once.
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

// Used instead of a round's number for bytes of the side channel (os/network/side_channel.h).
inline constexpr std::uint32_t kSideChannelRound = std::uint32_t{1} << 30;

class ControlLink {
 public:
  struct Callbacks {
    std::function<void(const Message&)> on_message{};
    // Called when anything was received, even a part of a frame.
    std::function<void()> on_sign_of_life{};
    // Called with carried bytes, in order.
    std::function<void(std::uint32_t round, std::string_view bytes)> on_relayed{};
    // Called when has_room() has become true again.
    std::function<void()> on_space_available{};
    // The session has ended: the other end closed the connection, or the received bytes are not a message. No callback
    // is called after this one.
    std::function<void(const std::string& reason)> on_closed{};
    // The connection is lost. Returns whether the session waits for a new connection; otherwise on_closed is called
    // next. May be null: then the session never waits. `is_network`: the network lost the connection; else the other
    // end closed it.
    std::function<bool(bool is_network)> on_disconnected{};
  };
  // `fd` is connected and non-blocking. Without a descriptor, call resume() later. `loop` must outlive the link. A
  // callback may destroy the link.
  ControlLink(EventLoop& loop, UniqueFd fd, Callbacks callbacks);
  ~ControlLink();
  ControlLink(const ControlLink&) = delete;
  ControlLink& operator=(const ControlLink&) = delete;

  // Sends the message, later if it cannot be sent at once. After the end of the session it is dropped.
  void send(const Message& message);
  // Sends a message that to_frame() has encoded, so that a message for thousands of nodes is encoded once.
  void send_frame(const std::string& frame);
  // Sends bytes for others, after all messages; at the next flush() at the latest.
  void relay_bytes(std::uint32_t round, std::string_view bytes);
  void flush();
  // Reports the number of received bytes with the next message. Needed at intervals only.
  void acknowledge();
  // Whether the caller should carry more bytes. If not, on_space_available is called later.
  bool has_room() const { return relayed_bytes_ < kMaxRelayedBytes && sent_.size() < kMaxUnacknowledged; }
  // The number of carried bytes that were not passed to the kernel yet; and whether the kernel has all sent and carried
  // bytes.
  std::size_t unsent_relayed_bytes() const { return relayed_bytes_; }
  bool is_idle() const { return sent_.is_all_sent() && outgoing_.empty() && relayed_.empty(); }
  // The address of the other end, such as "10.0.0.7 port 4711".
  std::string peer() const;
  // Ends the session; on_closed is not called.
  void abort_session();
  bool is_open() const { return !is_over_; }

  bool is_connected() const { return static_cast<bool>(fd_); }
  // Returns the connection; the session then waits for a new one. take_rest() returns the bytes that were read from it
  // but not used.
  UniqueFd release();
  std::string take_rest() { return incoming_.take_rest(); }
  // Continues with a new connection. Its other end has received `position` bytes of the session. `rest` was already
  // read from it. Returns false and changes nothing when that is impossible. Callbacks may be called during the call.
  bool resume(UniqueFd fd, std::uint64_t position, std::string_view rest = {});
  bool can_resume(std::uint64_t position) const { return !is_over_ && sent_.can_rewind(position); }
  // How many bytes of whole frames have been received in the session, and how many sent ones were acknowledged.
  std::uint64_t received() const { return received_; }
  std::uint64_t acknowledged() const { return sent_.acknowledged(); }
  // True when the kernel has sent data several times during at least this time, and the other end has acknowledged
  // nothing.
  bool is_stalled(std::chrono::steady_clock::time_point now, std::chrono::milliseconds time) const;
  // True when too many messages wait for a launcher that does not read them: some messages were dropped.
  bool has_overflowed() const { return has_overflowed_; }

 private:
  static constexpr std::size_t kMaxRelayedBytes = std::size_t{256} << 10;
  static constexpr std::size_t kMaxUnacknowledged = std::size_t{2} << 20;

  void watch();
  void write_all();
  bool take_next();
  void update_interest();
  void notify_space_available();
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
  std::uint64_t announced_ = 0;  // the part of received_ that was acknowledged to the other end
  ResendBuffer sent_;
  std::chrono::steady_clock::time_point
      progress_{};                    // when the other end last acknowledged data, or had none to acknowledge
  std::string outgoing_;              // messages that follow what is in sent_
  std::deque<FrameBuilder> relayed_;  // what follows those
  std::size_t relayed_bytes_ = 0;     // the size of relayed_
  bool was_full_ = false;
  bool waits_to_write_ = false;
  bool is_over_ = false;
  bool has_overflowed_ = false;
  std::shared_ptr<bool> is_alive_ = std::make_shared<bool>(true);  // false once destroyed, perhaps by a callback
};

}  // namespace launcher::control
