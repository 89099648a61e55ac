// What launchers tell each other besides the rendezvous, on the same connections: bytes in order between the
// coordinator and each of the others. Shared by who keeps the connections and who uses them; either may go first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "launcher/control/control_link.h"

namespace launcher::control {

// What carries it, in the place of a round's number.
inline constexpr std::uint32_t kSideRound = std::uint32_t{1} << 30;

class SideChannel {
 public:
  // By who keeps the connections: this launcher's to the coordinator, while there is one.
  void attach(ControlLink& link) { link_ = &link; }
  void detach() { link_ = nullptr; }
  // And of a coordinator, those to all members; null when there are none.
  std::function<void(std::string_view bytes)> to_members{};
  // How many of them there were when the round began, this launcher not counted; torchrun's nodes are none.
  std::function<std::size_t()> members{};

  void forget_members() {
    to_members = nullptr;
    members = nullptr;
  }

  // By who uses it. What has come from the coordinator, and from a member: its node, and by how many microseconds its
  // steady clock is ahead of ours, once that is known.
  std::function<void(std::string_view bytes)> on_coordinator{};
  std::function<void(int node, std::optional<std::int64_t> ahead, std::string_view bytes)> on_member{};

  bool has_coordinator() const { return link_ != nullptr && link_->is_open(); }
  // Whether more should be sent now: the ranks' store uses the connection as well.
  bool has_room() const { return has_coordinator() && link_->carried() < kMostCarried; }
  // All that was sent is on its way.
  bool is_sent() const { return !has_coordinator() || link_->is_idle(); }
  void send(std::string_view bytes) {
    if (!has_coordinator()) return;
    link_->carry(kSideRound, bytes);
    link_->flush();
  }

 private:
  static constexpr std::size_t kMostCarried = std::size_t{64} << 10;
  ControlLink* link_ = nullptr;
};

// Where there is nobody who wants it nothing happens.
inline void deliver_to_member(const SideChannel* channel, std::string_view bytes) {
  if (channel != nullptr && channel->on_coordinator) channel->on_coordinator(bytes);
}

}  // namespace launcher::control
