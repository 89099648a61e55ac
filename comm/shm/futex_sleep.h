// Internal: how a rank sleeps until another one has done what it waits for. No LibTorch.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/shm/layout.h"

namespace ddp::shm {

/// What is waited for.
class WaitCondition {
 public:
  /// Anything that any rank does.
  static WaitCondition any() { return WaitCondition(1); }
  /// That `rank` has filled or combined something.
  static WaitCondition data_of(int rank) { return WaitCondition(2 * (static_cast<uint32_t>(rank) + 1)); }
  /// That `rank` has taken something, so that a slot may be filled again.
  static WaitCondition free_slot_of(int rank) { return WaitCondition(2 * (static_cast<uint32_t>(rank) + 1) + 1); }

  uint32_t code() const { return code_; }
  bool operator==(const WaitCondition&) const = default;

 private:
  explicit WaitCondition(uint32_t code) : code_(code) {}
  uint32_t code_;
};

/// Wakes the rank of `sleeper` where it waits for `condition`; after the change itself, by a sequentially consistent
/// store, as all in shared memory is. Costs a read where it is awake.
void wake(RankBlock& sleeper, WaitCondition condition);
/// Whatever it waits for.
void wake_unconditionally(RankBlock& sleeper);

/// Sleeps until woken, or for `limit`, whichever comes first, unless `has_changed` finds after all what is waited for.
template <typename Check>
void sleep_until(RankBlock& own, WaitCondition condition, std::chrono::nanoseconds limit, const Check& has_changed);

/// The system call: until `wake_count` is no longer `expected`.
void futex_wait(std::atomic<uint32_t>& wake_count, uint32_t expected, std::chrono::nanoseconds limit);

template <typename Check>
void sleep_until(RankBlock& own, WaitCondition condition, std::chrono::nanoseconds limit, const Check& has_changed) {
  own.sleeping.store(condition.code());
  const uint32_t expected = own.wake_count.load();
  if (!has_changed()) futex_wait(own.wake_count, expected, limit);
  own.sleeping.store(0);
}

}  // namespace ddp::shm
