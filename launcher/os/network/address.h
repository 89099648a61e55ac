// Resolves host names to socket addresses without blocking the event loop: the system's resolver can take a minute.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;
};

// Parses a numeric address such as "10.0.0.1" or "fe80::1"; empty when `host` is a name. Makes no query.
std::vector<SocketAddress> numeric_addresses(const std::string& host, std::uint16_t port);

class AddressLookup {
 public:
  // Calls `done` once with the addresses; empty when the name is unknown. `done` may destroy the object. If the object
  // is destroyed earlier, `done` is not called.
  AddressLookup(EventLoop& loop, const std::string& host, std::uint16_t port,
                std::function<void(std::vector<SocketAddress>)> done);
  ~AddressLookup();
  AddressLookup(const AddressLookup&) = delete;
  AddressLookup& operator=(const AddressLookup&) = delete;

 private:
  void read();
  void finish();

  EventLoop& loop_;
  std::function<void(std::vector<SocketAddress>)> done_;
  pid_t helper_ = -1;  // the process that asks the resolver
  UniqueFd pidfd_;     // the helper's; empty where the kernel or the container has no pidfd_open
  UniqueFd answer_;
  std::string bytes_;
};

// Calls `done` as an AddressLookup does; at once if `host` is a numeric address, else from `lookup`.
void resolve(EventLoop& loop, std::unique_ptr<AddressLookup>& lookup, const std::string& host, std::uint16_t port,
             const std::function<void(std::vector<SocketAddress>)>& done);

}  // namespace launcher
