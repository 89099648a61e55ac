#include "launcher/os/network/listener.h"

#include <sys/epoll.h>

#include "launcher/os/network/tcp_socket.h"

namespace launcher {

Listener::Listener(EventLoop& loop, const ListenAt& where, std::uint16_t port, std::function<void(int fd)> on_ready)
    : loop_(loop), port_(port) {
  open(where);
  for (const UniqueFd& socket : sockets_) {
    loop_.add(socket.get(), EPOLLIN, [on_ready, fd = socket.get()](std::uint32_t) { on_ready(fd); });
  }
}

Listener::~Listener() {
  if (pause_) loop_.cancel(*pause_);
  for (const UniqueFd& socket : sockets_) loop_.remove(socket.get());
}

void Listener::open(const ListenAt& where) {
  if (where.kind != ListenAt::Kind::kAddresses) {
    sockets_.push_back(listen_or_throw(port_, where.kind == ListenAt::Kind::kLoopback));
    port_ = port_of(sockets_.back().get());
    return;
  }
  host_ = host_in(where.addresses.front());
  for (const SocketAddress& address : where.addresses) {
    sockets_.push_back(listen_or_throw(address, port_));
    port_ = port_of(sockets_.back().get());  // the same for all
  }
}

bool Listener::pause(std::chrono::milliseconds time) {
  if (pause_) return false;
  watch(0);
  pause_ = loop_.call_at(EventLoop::Clock::now() + time, [this] {
    pause_.reset();
    watch(EPOLLIN);
  });
  return true;
}

void Listener::watch(std::uint32_t events) {
  for (const UniqueFd& socket : sockets_) loop_.change(socket.get(), events);
}

}  // namespace launcher
