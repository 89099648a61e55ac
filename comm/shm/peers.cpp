#include "comm/shm/peers.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/shm/futex_sleep.h"

namespace ddp::shm {
namespace {

// Of the clock that all processes of a host share.
int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Peers::Peers(Segment segment, int rank, std::vector<int> numbers)
    : segment_(std::move(segment)),
      rank_(rank),
      numbers_(std::move(numbers)),
      pidfds_(static_cast<size_t>(segment_.ranks()), -1) {}

Peers::~Peers() {
  for (const int pidfd : pidfds_) {
    if (pidfd >= 0) close(pidfd);
  }
}

void Peers::announce(const Segment& segment, int rank) {
  RankBlock& block = segment.block(rank);
  block.start_time = start_time_of(getpid());
  block.pid = getpid();
}

void Peers::arrive() {
  RankBlock& own = segment_.block(rank_);
  if (own.pid == 0) announce(segment_, rank_);  // else its meeting has
  own.presence.store(Presence::kAttached);
}

void Peers::leave(const std::string& why) {
  if (std::exchange(has_left_, true)) return;
  RankBlock& own = segment_.block(rank_);
  const size_t length = std::min(why.size(), own.why.size() - 1);
  std::copy_n(why.data(), length, own.why.data());
  own.why[length] = '\0';
  own.presence.store(why.empty() ? Presence::kLeft : Presence::kFailed);
  for (int other = 0; other < segment_.ranks(); ++other) {
    if (other != rank_) wake_unconditionally(segment_.block(other));
  }
}

std::optional<std::string> Peers::announced_reason(int rank) const {
  const RankBlock& block = segment_.block(rank);
  switch (block.presence.load()) {
    case Presence::kFailed:
      return name(rank) + " gave up: " + block.why.data();
    case Presence::kLeft:
      return name(rank) + " has closed its group";
    default:
      return std::nullopt;
  }
}

std::optional<std::string> Peers::first_failure() const {
  for (int rank = 0; rank < segment_.ranks(); ++rank) {
    if (rank != rank_ && segment_.block(rank).presence.load() == Presence::kFailed) return announced_reason(rank);
  }
  return std::nullopt;
}

std::optional<std::string> Peers::gone(int rank) {
  if (auto goodbye = announced_reason(rank)) return goodbye;
  const RankBlock& block = segment_.block(rank);
  if (block.pid == getpid() || !has_died(rank)) return std::nullopt;
  // It may have written the reason just before it ended.
  if (auto goodbye = announced_reason(rank)) return goodbye;
  return name(rank) + " has died";
}

std::string Peers::name(int rank) const {
  const int number = numbers_.empty() ? rank : numbers_.at(static_cast<size_t>(rank));
  return "rank " + std::to_string(number) + " (process " + std::to_string(segment_.block(rank).pid) + ")";
}

void Peers::wait_for(int rank) {
  RankBlock& own = segment_.block(rank_);
  own.waits_for.store(rank + 1, std::memory_order_relaxed);
  own.last_checked_ns.store(now(), std::memory_order_release);
}

std::string Peers::name_with_cause(int rank, std::chrono::nanoseconds recently) const {
  std::string text = name(rank);
  const int64_t earliest = now() - recently.count();
  std::vector<int> named = {rank_, rank};
  for (;;) {
    const RankBlock& block = segment_.block(named.back());
    if (block.last_checked_ns.load(std::memory_order_acquire) < earliest) return text;
    const int next = block.waits_for.load(std::memory_order_relaxed) - 1;
    if (next < 0 || next >= segment_.ranks() || std::ranges::find(named, next) != named.end()) return text;
    text += ", which waits for " + name(next);
    named.push_back(next);
  }
}

// A pidfd opened while the process with this start time was alive cannot refer to a later process of the same pid.
bool Peers::has_died(int rank) {
  const RankBlock& block = segment_.block(rank);
  int& pidfd = pidfds_[static_cast<size_t>(rank)];
  if (pidfd < 0) {
    const int opened = static_cast<int>(syscall(SYS_pidfd_open, block.pid, 0));
    const bool is_another = block.start_time != 0 && start_time_of(block.pid) != block.start_time;
    if (is_another && opened >= 0) close(opened);
    if (is_another) return true;
    if (opened < 0) return kill(block.pid, 0) != 0 && errno == ESRCH;
    pidfd = opened;
  }
  pollfd ended{.fd = pidfd, .events = POLLIN, .revents = 0};
  return poll(&ended, 1, 0) == 1;
}

}  // namespace ddp::shm
