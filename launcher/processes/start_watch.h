// Sees which ranks have reached the store, for --start_timeout: a rank has when one of its processes owns, or owned, a
// TCP connection to the store's port. Looks at the kernel's tables from time to time until all have.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "launcher/system/event_loop.h"

namespace launcher {

// The inodes of the sockets in a table like /proc/net/tcp (or tcp6) whose other end has `port`. Pure.
std::set<std::uint64_t> sockets_to_port(std::string_view table, std::uint16_t port);

class StartWatch {
 public:
  // The running ranks and their processes.
  using RunningRanks = std::function<std::map<pid_t, int>()>;
  using OnLate = std::function<void(std::vector<int> missing)>;

  // After `timeout` calls `on_late` with the running ranks that were never seen, if there are any. A rank that ended
  // before needs no store. `loop` must outlive this.
  StartWatch(EventLoop& loop, std::uint16_t port, std::chrono::milliseconds timeout, RunningRanks running_ranks,
             OnLate on_late);
  ~StartWatch();
  StartWatch(const StartWatch&) = delete;
  StartWatch& operator=(const StartWatch&) = delete;

 private:
  void look();
  void look_at_families(const std::map<pid_t, int>& ranks, const std::set<std::uint64_t>& inodes);
  std::vector<int> missing() const;

  EventLoop& loop_;
  std::uint16_t port_;
  EventLoop::Clock::time_point deadline_;
  RunningRanks running_ranks_;
  OnLate on_late_;
  std::set<int> seen_;
  EventLoop::Clock::time_point next_family_look_{};
  std::optional<EventLoop::TimerId> timer_;
};

}  // namespace launcher
