// What launchers tell each other besides the rendezvous, on the same connections: bytes in order between the
// coordinator and each of the others. Shared by who keeps the connections and who uses them; either may go first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>

#include "launcher/os/network/clock_difference.h"

namespace launcher {

class SideChannel {
 public:
  // By who keeps the connections: this launcher's to the coordinator, while there is one.
  struct Connection {
    std::function<bool()> is_open{};
    std::function<std::size_t()> waiting{};  // bytes that were sent and that the kernel does not have yet
    std::function<bool()> is_idle{};         // the kernel has all that was sent
    std::function<void(std::string_view bytes)> send{};
  };
  void attach(Connection connection) { connection_ = std::move(connection); }
  void detach() { connection_.reset(); }
  // And of a coordinator, those to all members, or null.
  std::function<void(std::string_view bytes)> to_members{};
  // How many of them there were when the round began, this launcher not counted; torchrun's nodes do not count.
  std::function<std::size_t()> members{};

  void forget_members() {
    to_members = nullptr;
    members = nullptr;
  }

  // By who uses it. What has arrived from the coordinator, and from a member: its node, and what is known of its
  // steady clock.
  std::function<void(std::string_view bytes)> on_coordinator{};
  std::function<void(int node, std::optional<ClockDifference> clock, std::string_view bytes)> on_member{};

  bool has_coordinator() const { return connection_ && connection_->is_open(); }
  // Whether more should be sent now: the ranks' store uses the connection as well.
  bool has_room() const { return has_coordinator() && connection_->waiting() < kMostWaiting; }
  // All that was sent is on its way.
  bool is_sent() const { return !has_coordinator() || connection_->is_idle(); }
  void send(std::string_view bytes) {
    if (has_coordinator()) connection_->send(bytes);
  }

 private:
  static constexpr std::size_t kMostWaiting = std::size_t{64} << 10;
  std::optional<Connection> connection_;
};

}  // namespace launcher
