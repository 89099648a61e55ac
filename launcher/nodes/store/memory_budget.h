// What the store holds in memory, and how much it may: everything that stays is charged to one budget. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <utility>

namespace launcher::store {

// What this machine and this process's limits leave to the store.
// Open files (ulimit -n).
int descriptor_limit();
// Bytes that it may hold in all: a quarter of the machine's memory, half of the address space, at most 1 GiB.
std::size_t memory_limit();

// What the containers take for a key, a value or one who waits for a key, beside the bytes.
inline constexpr std::size_t kEntryBytes = 128;

class MemoryBudget {
 public:
  explicit MemoryBudget(std::size_t limit = std::numeric_limits<std::size_t>::max()) : limit_(limit) {}

  bool has_room(std::size_t bytes) const { return used_ <= limit_ && bytes <= limit_ - used_; }
  std::size_t used() const { return used_; }
  std::size_t limit() const { return limit_; }
  // "the store is full: ...", for a request that has no room.
  std::string full_message() const;

 private:
  friend class Charge;
  std::size_t limit_;
  std::size_t used_ = 0;
};

// A part of the budget's use, as long as the object lives. May exceed the limit: the caller that asks for memory checks
// before.
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
