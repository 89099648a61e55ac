// A TCP server's listening sockets inside the event loop: on one or several addresses, all with one port.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/network/address.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

// Where a server is to listen.
struct ListenAt {
  enum class Kind : std::uint8_t { kLoopback, kEverywhere, kAddresses };
  Kind kind = Kind::kLoopback;
  std::vector<SocketAddress> addresses{};  // whatever their port
};

class Listener {
 public:
  // `port` 0: the kernel chooses. `on_ready` is called with a socket from which connections can be accepted. Throws
  // LaunchError when the port cannot be had, and PortInUse when somebody else has it. `loop` must outlive the listener.
  Listener(EventLoop& loop, const ListenAt& where, std::uint16_t port, std::function<void(int fd)> on_ready);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const { return port_; }
  // An address at which it can be reached from this machine.
  const std::string& host() const { return host_; }
  // For so long on_ready is not called: too few descriptors are left, say. False during an earlier pause, which stays
  // as it is.
  bool pause(std::chrono::milliseconds time);

 private:
  void open(const ListenAt& where);
  void watch(std::uint32_t events);

  EventLoop& loop_;
  std::uint16_t port_;
  std::string host_ = "127.0.0.1";
  std::vector<UniqueFd> sockets_;
  std::optional<EventLoop::TimerId> pause_;
};

}  // namespace launcher
