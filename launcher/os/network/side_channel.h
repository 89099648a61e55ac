// Data that launchers exchange besides the rendezvous, on the same connections: ordered bytes between the coordinator
// and each other launcher. The owner of the connections and their user share the object, and either may be destroyed
// first.
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
  // Set by the owner of the connections: this launcher's connection to the coordinator, while it exists.
  struct Connection {
    std::function<bool()> is_open{};
    std::function<std::size_t()> waiting{};  // the number of bytes that were not passed to the kernel yet
    std::function<bool()> is_idle{};         // all bytes were passed to the kernel
    std::function<void(std::string_view bytes)> send{};
  };
  void attach(Connection connection) { connection_ = std::move(connection); }
  void detach() { connection_.reset(); }
  // In the coordinator: sends to all members; otherwise null.
  std::function<void(std::string_view bytes)> to_members{};
  // The number of members when the round began, without this launcher and torchrun nodes.
  std::function<std::size_t()> members{};

  void forget_members() {
    to_members = nullptr;
    members = nullptr;
  }

  // Set by the user of the channel. They receive bytes from the coordinator, and from a member: its node, and what is
  // known of its steady clock.
  std::function<void(std::string_view bytes)> on_coordinator_bytes{};
  std::function<void(int node, std::optional<ClockDifference> clock, std::string_view bytes)> on_member_bytes{};

  bool has_coordinator() const { return connection_ && connection_->is_open(); }
  // Whether more should be sent now; the ranks' store uses the connection, too.
  bool has_room() const { return has_coordinator() && connection_->waiting() < kMaxWaitingBytes; }
  // Whether all bytes were passed to the kernel.
  bool is_sent() const { return !has_coordinator() || connection_->is_idle(); }
  void send(std::string_view bytes) {
    if (has_coordinator()) connection_->send(bytes);
  }

 private:
  static constexpr std::size_t kMaxWaitingBytes = std::size_t{64} << 10;
  std::optional<Connection> connection_;
};

}  // namespace launcher
