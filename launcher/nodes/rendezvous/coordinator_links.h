// The coordinator's end of the connections to all launchers: accepts them, continues the session of a node whose
// connection the network has lost, asks each node at intervals whether it is there, measures its clock, and says when
// one is gone. A peer that has not introduced itself as a launcher yet is unknown; few of these are there at once, and
// none for long.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "launcher/nodes/control/control_link.h"
#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/heartbeat.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/os/network/listener.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

class CoordinatorLinks {
 public:
  using Id = std::uint64_t;
  struct Loss {
    std::string reason{};                          // how it was noticed
    std::chrono::system_clock::time_point last{};  // sign of life
    bool is_silent = false;                        // it may still be there, where it sends nothing
  };
  struct Callbacks {
    std::function<void(Id, const control::Message&)> on_message{};
    // Of what its connection carries for its ranks, and that there is room for more.
    std::function<void(Id, std::uint32_t round, std::string_view bytes)> on_carried{};
    std::function<void(Id)> on_room{};
    std::function<void(Id, const Loss&)> on_gone{};
    // A peer connected that does not know the secret, or that replays the messages of an earlier connection.
    std::function<void(const std::string& text)> on_unknown_peer{};
    // How long this launcher may be silent.
    std::function<std::chrono::milliseconds()> timeout{};
  };
  struct Settings {
    ListenAt where{};
    std::chrono::milliseconds ping_interval{100};
    std::chrono::milliseconds reconnect_after{1'000};      // of silence nodes make a new connection
    std::optional<control::Secret> secret = std::nullopt;  // what nodes must prove to know
    int nodes = 1;                                         // that may come at once
  };
  // Listens on a free port. Throws LaunchError if no port is free.
  CoordinatorLinks(EventLoop& loop, Settings settings, Callbacks callbacks);

  std::uint16_t port() const { return listener_.port(); }
  // A connection of this launcher's own node.
  UniqueFd connect_locally();
  // It has introduced itself: not unknown any more.
  void know(Id id);
  void drop(Id id);
  void send(Id to, const control::Message& message);
  void send_to_all(const control::Message& message);
  // Its connection, or null.
  control::ControlLink* link(Id id);
  // A node that has heard nothing of this launcher closes its connection: it counts as one that is silent.
  void lose_coordinator(Id id, const std::string& reason);
  // Ends a connection by which nonsense came.
  void close(Id id, const std::string& reason) { on_closed(id, reason); }
  // At once, as timeout() has changed.
  void ping_all();
  // This launcher did nothing for `time` or longer, a moment ago.
  bool was_delayed(std::chrono::milliseconds time) const;
  // By how much its clock is ahead of ours, as well as that is known; and its steady clock.
  std::chrono::microseconds clock_offset(Id id) const;
  std::optional<ClockDifference> steady_difference(Id id) const;
  // What is carried to each that has introduced itself.
  void carry_to_all(std::uint32_t round, std::string_view bytes);

 private:
  using Clock = EventLoop::Clock;
  struct Peer {
    std::unique_ptr<control::ControlLink> link;
    control::HeartbeatTimeout heartbeat;
    Clock::time_point accepted = Clock::now();
    std::chrono::microseconds clock_offset{0};
    std::optional<std::chrono::microseconds> round_trip = std::nullopt;  // of the answer from which it was computed
    control::ClockOffset steady{};
    std::string challenge{};   // it was sent, and not answered yet
    std::string session{};     // "": of this launcher's own node, or of an unknown peer
    int attempt = 0;           // which connection of its session it has
    bool is_given_up = false;  // when it returns, it still reads why
    Clock::time_point given_up{};
  };

  void accept_all(int listener);
  bool has_room();
  void pause_accepting();
  void end_unknown_peers(Clock::time_point now);
  Id add(UniqueFd fd);
  std::unique_ptr<control::ControlLink> make_link(Id id, UniqueFd fd);
  void check(Id id, const control::Message& message);
  std::string protocol_violation(const Peer& peer, const control::Message& message) const;
  void turn_away(Peer& peer, const std::string& what);
  void begin_session(Id id, const control::Answer& answer);
  void resume_session(Id unknown, Id id, const control::Answer& answer);
  bool welcome(Peer& peer, const control::Answer& answer, std::uint64_t received) const;
  void on_message(Id id, const control::Message& message);
  void on_carried(Id id, std::uint32_t round, std::string_view bytes);
  void on_pong(Peer& peer, const control::Pong& pong) const;
  void on_closed(Id id, const std::string& reason);
  void give_up(Id id, Peer& peer, Clock::time_point now);
  void end_useless(Clock::time_point now);
  void on_tick();

  EventLoop& loop_;
  Settings settings_;
  Callbacks callbacks_;
  Listener listener_;
  Id next_id_ = 0;
  int named_unknown_peers_ = 0;
  std::map<Id, Peer> peers_;
  std::set<Id> unknown_peers_;
  std::map<std::string, Id> sessions_;
  Clock::time_point next_ping_;
  Clock::duration longest_delay_{};  // of late
  Clock::time_point delayed_{};
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
