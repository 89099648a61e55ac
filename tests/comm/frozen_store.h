// A store that stands still, and how long tests of a store's client wait.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "tests/support/catch.h"

namespace ddp::detail {

constexpr std::chrono::milliseconds kLimit{100};
constexpr std::chrono::seconds kHangLimit{10};

// Accepts into its backlog and never answers, as a stopped process does.
class FrozenStore {
 public:
  /// With `listens` false it refuses connections until listen(), and nobody else gets its port.
  explicit FrozenStore(bool listens = true) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    CHECK(::bind(fd_, reinterpret_cast<sockaddr*>(&address), length) == 0);
    if (listens) listen();
    CHECK(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length) == 0);
    port_ = ntohs(address.sin_port);
  }
  ~FrozenStore() { ::close(fd_); }
  FrozenStore(const FrozenStore&) = delete;
  FrozenStore& operator=(const FrozenStore&) = delete;

  void listen() const { CHECK(::listen(fd_, 8) == 0); }
  uint16_t port() const { return port_; }
  int accept() const { return ::accept(fd_, nullptr, nullptr); }

 private:
  int fd_;
  uint16_t port_ = 0;
};

}  // namespace ddp::detail
