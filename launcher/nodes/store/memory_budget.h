// The memory of the store and its limit: everything that stays is counted against one budget. Pure.
#pragma once

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace launcher::store {

// The limit is lower on a machine with less memory.
inline constexpr std::size_t kMaxBytes = std::size_t{1} << 30;

// Limits from this machine and this process: open files (ulimit -n).
inline int descriptor_limit() {
  rlimit limit{};
  const bool is_known = ::getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < std::numeric_limits<int>::max();
  return is_known ? static_cast<int>(limit.rlim_cur) : std::numeric_limits<int>::max();
}

// The most bytes that the store may hold: a quarter of the machine's memory, half of the limit on address space, at
// most 1 GiB.
inline std::size_t memory_limit() {
  std::size_t limit = kMaxBytes;
  const long pages = ::sysconf(_SC_PHYS_PAGES);
  const long page = ::sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0)
    limit = std::min(limit, static_cast<std::size_t>(pages) * static_cast<std::size_t>(page) / 4);
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY) {
    limit = std::min<std::size_t>(limit, space.rlim_cur / 2);
  }
  return limit;
}

// The overhead of a key, a value or a waiting connection in the containers.
inline constexpr std::size_t kEntryBytes = 128;

class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit = std::numeric_limits<std::size_t>::max()) : limit_(limit) {}

  bool has_room(std::size_t bytes) const { return used_ <= limit_ && bytes <= limit_ - used_; }
  std::size_t used() const { return used_; }
  std::size_t limit() const { return limit_; }
  // "the store is full: ...", for a request that has no room.
  std::string full_message() const {
    return "the store is full: " + std::to_string(used_ >> 20) + " of " + std::to_string(limit_ >> 20) +
           " MiB are used by keys, values, and requests and replies that clients have not completely sent or read";
  }

 private:
  friend class Charge;
  std::size_t limit_;
  std::size_t used_ = 0;
};

// Counts bytes against the budget for as long as the object lives. May exceed the limit: the caller checks before it
// allocates.
class Charge {
 public:
  Charge() = default;
  Charge(std::shared_ptr<MemoryBudget> budget, std::size_t bytes) : budget_(std::move(budget)) { resize(bytes); }
  Charge(Charge&& other) noexcept : budget_(std::move(other.budget_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Charge& operator=(Charge&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { resize(0); }

  void resize(std::size_t bytes) {
    if (!budget_) return;
    budget_->used_ += bytes - bytes_;
    bytes_ = bytes;
  }

 private:
  std::shared_ptr<MemoryBudget> budget_;
  std::size_t bytes_ = 0;
};

}  // namespace launcher::store
