// Finds out which ranks have reached the store, for --start_timeout. A rank has reached it when one of its processes
// has, or had, a TCP connection to the store's port. The kernel's tables are read when the store accepts a connection,
// before it sends an answer, and from time to time until all ranks have arrived.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "launcher/local/processes/socket_owners.h"
#include "launcher/os/system/event_loop.h"

namespace launcher {

class StartWatch {
 public:
  using RunningRanks = std::function<std::map<pid_t, int>()>;
  using OnLate = std::function<void(std::vector<int> missing)>;

  using OnScanned = std::function<void()>;

  // When `timeout` expires, calls `on_late` with the running ranks that have not reached the store, if there are any. A
  // rank that ended before does not count. `loop` must outlive this.
  StartWatch(EventLoop& loop, std::vector<std::uint16_t> ports, std::chrono::milliseconds timeout,
             RunningRanks running_ranks, OnLate on_late, OnScanned on_scanned);

  // Called when the store on this node has accepted a connection whose remote port is `peer_port`. Returns true when a
  // scan will follow. If the store answers before the scan, the scan may be too late.
  bool connected(std::uint16_t peer_port);

 private:
  void scan();
  void scan_ranks(const std::map<pid_t, int>& ranks, const PortsOfSockets& sockets);
  void scan_process_trees(const std::map<pid_t, int>& ranks, const PortsOfSockets& sockets);
  bool scan_process(pid_t pid, int rank, const PortsOfSockets& sockets);
  void forget_foreign_connections(const PortsOfSockets& sockets);
  void forget_closed(const PortsOfSockets& sockets);
  std::vector<int> missing() const;
  PortsOfSockets sockets_to_store() const;

  EventLoop& loop_;
  std::vector<std::uint16_t> ports_;  // the ports of the store to which ranks may connect
  EventLoop::Clock::time_point deadline_;
  RunningRanks running_ranks_;
  OnLate on_late_;
  OnScanned on_scanned_;
  std::set<int> seen_;
  std::map<pid_t, int> connected_processes_;  // processes that were seen with a connection, and their ranks
  std::set<std::uint16_t> unknown_ports_;     // connections that the store accepted and whose process is not known yet
  std::size_t closed_before_lookup_ = 0;      // how many of these were closed before their process was found
  EventLoop::Clock::time_point next_scan_{};
  EventLoop::Clock::time_point next_tree_scan_{};
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
