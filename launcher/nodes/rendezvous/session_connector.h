// Connects a node's session to the coordinator: with the connection that the search made, and with a new one after an
// interruption of the network. Each attempt has a short timeout, because the kernel repeats a connection request at
// growing intervals.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/nodes/control/control_link.h"
#include "launcher/nodes/control/control_messages.h"
#include "launcher/nodes/control/secret.h"
#include "launcher/os/network/address.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

class SessionConnector {
 public:
  struct Settings {
    std::optional<control::Secret> secret = std::nullopt;  // the coordinator must know it, too
    std::string coordinator{};                             // "host0:29500", for messages
    control::Hello hello{};                                // for a coordinator that is older than sessions
  };
  struct Callbacks {
    // How many bytes of the session were received, and how many were acknowledged.
    std::function<std::uint64_t()> received{};
    std::function<std::uint64_t()> acknowledged{};
    // Called when the node asks to continue with a new connection: later data on the old one does not count. Returns
    // the old connection. It is kept open until the coordinator has answered, because its end would count as the node's
    // end.
    std::function<UniqueFd()> on_asking{};
    // `rest` was already read from the new connection. This callback and the next two may destroy the object.
    std::function<void(UniqueFd fd, const control::Welcome& welcome, std::string_view rest)> on_connected{};
    // The coordinator refuses this node.
    std::function<void(const JoinFailure& reason)> on_refused{};
    // The other end no longer listens.
    std::function<void(const std::string& reason)> on_ended{};
  };
  SessionConnector(EventLoop& loop, Settings settings, Callbacks callbacks);
  ~SessionConnector();
  SessionConnector(const SessionConnector&) = delete;
  SessionConnector& operator=(const SessionConnector&) = delete;

  // Begins with the first connection. Later connections go to the same address.
  void begin(UniqueFd fd);
  void reconnect();
  // Ends the attempt, because it is no longer needed. Must not be called after on_asking.
  void cancel();
  bool is_connecting() const { return is_connecting_; }
  bool has_asked() const { return has_asked_; }

 private:
  void connect();
  void on_connect_outcome();
  void start_handshake(UniqueFd fd);
  void on_message(const control::Message& message);
  void on(const control::Challenge& challenge);
  void on(const control::Welcome& welcome);
  void refuse_version();
  void refuse(const JoinFailure& reason);
  void end(const std::string& reason);
  void try_again(EventLoop::Clock::duration pause);
  void drop_attempt();

  EventLoop& loop_;
  Settings settings_;
  Callbacks callbacks_;
  std::string session_;
  SocketAddress address_{};
  bool is_connecting_ = false;
  bool has_asked_ = false;
  int attempts_ = 0;  // the number of attempts that have sent a request
  UniqueFd connecting_;
  std::unique_ptr<control::ControlLink> attempt_;
  std::string coordinator_challenge_;  // the coordinator's challenge
  std::string node_challenge_;         // this node's
  std::vector<UniqueFd> replaced_;     // connections on which the coordinator may have received a request
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
