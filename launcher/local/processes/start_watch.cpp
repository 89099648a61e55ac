#include "launcher/local/processes/start_watch.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>

#include "launcher/local/processes/descendants.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kStartInterval = 50ms;
// A scan takes time, and a scan of all processes takes more. The pause after a scan is this many times as long as the
// scan.
constexpr int kPauseToScanRatio = 4;
constexpr int kPauseToTreeScanRatio =
    20;  // for scans of all processes, unless an accepted connection has no known owner yet

// A daemon, whose parent has ended, is a child of the launcher. Its environment still has its rank.
std::optional<int> rank_of_daemon(const ProcessIdentity& process) {
  if (process.parent != ::getpid()) return std::nullopt;
  const auto text = variable_of(process.pid, "RANK");
  int rank = 0;
  if (!text) return std::nullopt;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), rank);
  return error == std::errc() && end == text->data() + text->size() ? std::optional(rank) : std::nullopt;
}

}  // namespace

StartWatch::StartWatch(EventLoop& loop, std::vector<std::uint16_t> ports, std::chrono::milliseconds timeout,
                       RunningRanks running_ranks, OnLate on_late, OnScanned on_scanned)
    : loop_(loop),
      ports_(std::move(ports)),
      deadline_(EventLoop::Clock::now() + timeout),
      running_ranks_(std::move(running_ranks)),
      on_late_(std::move(on_late)),
      on_scanned_(std::move(on_scanned)) {
  timer_.start_at(std::min(deadline_, EventLoop::Clock::now() + kStartInterval), [this] { scan(); });
}

bool StartWatch::connected(std::uint16_t peer_port) {
  if (!timer_.is_running()) return false;  // all ranks have arrived, or the timeout has expired
  unknown_ports_.insert(peer_port);
  timer_.start_at(std::min(deadline_, next_scan_), [this] { scan(); });
  return true;
}

std::vector<int> StartWatch::missing() const {
  std::vector<int> ranks;
  for (const auto& [pid, rank] : running_ranks_()) {
    if (!seen_.contains(rank)) ranks.push_back(rank);
  }
  return ranks;
}

PortsOfSockets StartWatch::sockets_to_store() const {
  PortsOfSockets sockets;
  for (const std::uint16_t port : ports_) sockets.merge(sockets_to_port(port));
  return sockets;
}

void StartWatch::scan() {
  const auto begin = EventLoop::Clock::now();
  const bool is_last = begin >= deadline_;
  PortsOfSockets sockets = sockets_to_store();
  const std::map<pid_t, int> ranks = running_ranks_();
  scan_ranks(ranks, sockets);
  std::vector<int> late = missing();
  if (!late.empty() && !sockets.empty() && (is_last || begin >= next_tree_scan_ || !unknown_ports_.empty())) {
    scan_process_trees(ranks, sockets);
    // A socket that was closed since the first scan may have been a rank's.
    sockets = sockets_to_store();
    forget_foreign_connections(sockets);
    next_tree_scan_ = begin + (EventLoop::Clock::now() - begin) * kPauseToTreeScanRatio;
    late = missing();
  }
  forget_closed(sockets);
  on_scanned_();
  if (late.empty()) return;
  const auto now = EventLoop::Clock::now();
  if (is_last) {
    // A connection without a known owner may belong to any rank. Waiting for a rank in vain is better than ending a
    // healthy job.
    if (late.size() > closed_before_lookup_) on_late_(std::move(late));
    return;
  }
  next_scan_ = now + (now - begin) * kPauseToScanRatio;
  timer_.start_at(std::min(deadline_, std::max(next_scan_, now + kStartInterval)), [this] { scan(); });
}

bool StartWatch::scan_process(pid_t pid, int rank, const PortsOfSockets& sockets) {
  const PortsOfSockets owned = sockets_of(pid, sockets);
  for (const auto& [inode, own_port] : owned) unknown_ports_.erase(own_port);
  if (owned.empty()) return false;
  seen_.insert(rank);
  connected_processes_.emplace(pid, rank);
  return true;
}

void StartWatch::scan_ranks(const std::map<pid_t, int>& ranks, const PortsOfSockets& sockets) {
  if (sockets.empty()) return;
  // A rank that was seen may have opened the new connections as well.
  if (!unknown_ports_.empty()) {
    for (const auto& [pid, rank] : std::map<pid_t, int>(connected_processes_)) scan_process(pid, rank, sockets);
  }
  for (const auto& [pid, rank] : ranks) {
    if (!seen_.contains(rank)) scan_process(pid, rank, sockets);
  }
}

// A child of a rank may have the connection, for example when the rank is a shell. This scans every process of the
// machine.
void StartWatch::scan_process_trees(const std::map<pid_t, int>& ranks, const PortsOfSockets& sockets) {
  // Parents come before their children, so a process's rank is known before its children's.
  std::map<pid_t, int> rank_of = ranks;
  for (const ProcessIdentity& process : descendants_of(::getpid())) {
    if (rank_of.contains(process.pid)) continue;
    const auto parent = rank_of.find(process.parent);
    const std::optional<int> rank_or_none = parent != rank_of.end() ? parent->second : rank_of_daemon(process);
    if (!rank_or_none) continue;
    const int rank = *rank_or_none;
    rank_of.emplace(process.pid, rank);
    if (!seen_.contains(rank) || !unknown_ports_.empty()) scan_process(process.pid, rank, sockets);
  }
}

// Removes connections that are still open but belong to no process of the job.
void StartWatch::forget_foreign_connections(const PortsOfSockets& sockets) {
  for (const auto& [inode, own_port] : sockets) unknown_ports_.erase(own_port);
}

void StartWatch::forget_closed(const PortsOfSockets& sockets) {
  closed_before_lookup_ += std::erase_if(unknown_ports_, [&](std::uint16_t port) {
    return std::none_of(sockets.begin(), sockets.end(), [&](const auto& socket) { return socket.second == port; });
  });
}

}  // namespace launcher
