// The coordinator's connections to all launchers. It accepts them, continues the session of a node whose connection was
// lost, sends pings, measures the clocks of the nodes, and reports when a node is lost. A peer that has not introduced
// itself as a launcher is unknown. The number of unknown peers and their time are limited.
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
    std::string reason{};                          // how the loss was detected
    std::chrono::system_clock::time_point last{};  // sign of life
    bool is_silent = false;                        // true when the node sends nothing, but may still run
  };
  struct Callbacks {
    std::function<void(Id, const control::Message&)> on_message{};
    // Carried bytes of the node's ranks have arrived; and there is room to carry more.
    std::function<void(Id, std::uint32_t round, std::string_view bytes)> on_relayed{};
    std::function<void(Id)> on_space_available{};
    std::function<void(Id, const Loss&)> on_gone{};
    // A peer has connected that does not know the secret, or that replays messages of an earlier connection.
    std::function<void(const std::string& text)> on_unknown_peer{};
    // Returns how long this launcher may be silent.
    std::function<std::chrono::milliseconds()> timeout{};
  };
  struct Settings {
    ListenAt where{};
    std::chrono::milliseconds ping_interval{100};
    std::chrono::milliseconds reconnect_after{1'000};      // the silence after which nodes make a new connection
    std::optional<control::Secret> secret = std::nullopt;  // the secret that nodes must prove to know
    int nodes = 1;                                         // how many may connect at the same time
  };
  // Listens on a free port. Throws LaunchError if no port is free.
  CoordinatorLinks(EventLoop& loop, Settings settings, Callbacks callbacks);

  std::uint16_t port() const { return listener_.port(); }
  // Returns the node's end of a connection for this launcher's own node.
  UniqueFd connect_locally();
  // The peer has introduced itself, so it is no longer unknown.
  void mark_known(Id id);
  void drop(Id id);
  void send(Id to, const control::Message& message);
  void send_to_all(const control::Message& message);
  // The peer's connection, or null.
  control::ControlLink* link(Id id);
  // Called when a node reports that it has received nothing from this launcher for too long and closes the connection.
  // The node then counts as silent.
  void lose_coordinator(Id id, const std::string& reason);
  // Ends a connection on which invalid data arrived.
  void close(Id id, const std::string& reason) { on_closed(id, reason); }
  // Sends a ping to all nodes at once, because timeout() has changed.
  void ping_all();
  // True when this launcher recently did nothing for `time` or longer.
  bool was_delayed(std::chrono::milliseconds time) const;
  // The offset of the node's system clock from this one, and of its steady clock, as far as they are known.
  std::chrono::microseconds clock_offset(Id id) const;
  std::optional<ClockDifference> steady_difference(Id id) const;
  // Carries bytes to all nodes that have introduced themselves.
  void relay_to_all(std::uint32_t round, std::string_view bytes);

 private:
  using Clock = EventLoop::Clock;
  struct Peer {
    std::unique_ptr<control::ControlLink> link;
    control::HeartbeatTimeout heartbeat;
    Clock::time_point accepted = Clock::now();
    std::chrono::microseconds clock_offset{0};
    std::optional<std::chrono::microseconds> round_trip =
        std::nullopt;  // the round trip from which clock_offset was computed
    control::ClockOffset steady{};
    std::string challenge{};   // sent, but not answered yet
    std::string session{};     // "": of this launcher's own node, or of an unknown peer
    int attempt = 0;           // the number of the session's connection
    bool is_given_up = false;  // if it returns, it receives the reason
    Clock::time_point given_up{};
  };

  void accept_all(int listener);
  bool has_room();
  void pause_accepting();
  void close_unknown_peers(Clock::time_point now);
  Id add(UniqueFd fd);
  std::unique_ptr<control::ControlLink> make_link(Id id, UniqueFd fd);
  void check(Id id, const control::Message& message);
  std::string protocol_violation(const Peer& peer, const control::Message& message) const;
  void reject(Peer& peer, const std::string& what);
  void begin_session(Id id, const control::Answer& answer);
  void resume_session(Id unknown, Id id, const control::Answer& answer);
  bool welcome(Peer& peer, const control::Answer& answer, std::uint64_t received) const;
  void on_message(Id id, const control::Message& message);
  void on_relayed(Id id, std::uint32_t round, std::string_view bytes);
  void on_pong(Peer& peer, const control::Pong& pong) const;
  void on_closed(Id id, const std::string& reason);
  void give_up(Id id, Peer& peer, Clock::time_point now);
  void close_useless_connections(Clock::time_point now);
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
  Clock::duration longest_delay_{};  // the longest recent delay
  Clock::time_point delayed_{};
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
