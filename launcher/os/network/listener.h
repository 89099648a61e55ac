// The listening sockets of a TCP server in the event loop: on one or several addresses, all with the same port.
#pragma once

#include <sys/epoll.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/network/address.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct ListenAt {
  enum class Kind : std::uint8_t { kLoopback, kAnyAddress, kAddresses };
  Kind kind = Kind::kLoopback;
  std::vector<SocketAddress> addresses{};  // their ports are ignored
};

class Listener {
 public:
  // `port` 0: the kernel chooses. Calls `on_ready` with a socket from which connections can be accepted. Throws
  // LaunchError when the port cannot be used, and PortInUse when another program has it. `loop` must outlive the
  // listener.
  Listener(EventLoop& loop, const ListenAt& where, std::uint16_t port, std::function<void(int fd)> on_ready)
      : loop_(loop), port_(port) {
    open(where);
    for (const UniqueFd& socket : sockets_) {
      loop_.add(socket.get(), EPOLLIN, [on_ready, fd = socket.get()](std::uint32_t) { on_ready(fd); });
    }
  }
  ~Listener() {
    for (const UniqueFd& socket : sockets_) loop_.remove(socket.get());
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const { return port_; }
  // An address at which this machine can reach the server.
  const std::string& host() const { return host_; }
  // Does not call on_ready for this time, for example because there are too few descriptors. During an earlier pause it
  // changes nothing and returns false.
  bool pause(std::chrono::milliseconds time) {
    if (pause_.is_running()) return false;
    watch(0);
    pause_.start_in(time, [this] { watch(EPOLLIN); });
    return true;
  }

 private:
  void open(const ListenAt& where) {
    if (where.kind != ListenAt::Kind::kAddresses) {
      sockets_.push_back(listen_or_throw(port_, where.kind == ListenAt::Kind::kLoopback));
      port_ = port_of(sockets_.back().get());
      return;
    }
    host_ = host_in(where.addresses.front());
    for (const SocketAddress& address : where.addresses) {
      sockets_.push_back(listen_or_throw(address, port_));
      port_ = port_of(sockets_.back().get());  // all sockets have the same port
    }
  }
  void watch(std::uint32_t events) {
    for (const UniqueFd& socket : sockets_) loop_.change(socket.get(), events);
  }

  EventLoop& loop_;
  std::uint16_t port_;
  std::string host_ = "127.0.0.1";
  std::vector<UniqueFd> sockets_;
  EventLoop::Timer pause_{loop_};
};

}  // namespace launcher
