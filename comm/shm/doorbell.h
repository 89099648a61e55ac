// Internal: how a rank sleeps until another one has done what it waits for. No LibTorch.
#pragma once

#include <chrono>
#include <cstdint>

#include "comm/shm/layout.h"

namespace ddp::shm {

/// What is waited for.
class Cause {
 public:
  /// Anything that any rank does.
  static Cause any() { return Cause(1); }
  /// That `rank` has filled or combined something.
  static Cause data_of(int rank) { return Cause(2 * (static_cast<uint32_t>(rank) + 1)); }
  /// That `rank` has taken something, so that a slot may be filled again.
  static Cause free_slot_of(int rank) { return Cause(2 * (static_cast<uint32_t>(rank) + 1) + 1); }

  uint32_t code() const { return code_; }
  bool operator==(const Cause&) const = default;

 private:
  explicit Cause(uint32_t code) : code_(code) {}
  uint32_t code_;
};

/// Wakes the rank of `sleeper` where it waits for `cause`; after the change itself, by a sequentially consistent
/// store, as all in shared memory is. Costs a read where it is awake.
void wake(RankBlock& sleeper, Cause cause);
/// Whatever it waits for.
void wake_unconditionally(RankBlock& sleeper);

/// Sleeps until woken, or for `limit`, whichever comes first, unless `has_changed` finds after all what is waited for.
template <typename Check>
void sleep_until(RankBlock& own, Cause cause, std::chrono::nanoseconds limit, const Check& has_changed);

/// The system call: until `bell` is no longer `heard`.
void wait_for_bell(std::atomic<uint32_t>& bell, uint32_t heard, std::chrono::nanoseconds limit);

template <typename Check>
void sleep_until(RankBlock& own, Cause cause, std::chrono::nanoseconds limit, const Check& has_changed) {
  own.sleeping.store(cause.code());
  const uint32_t heard = own.bell.load();
  if (!has_changed()) wait_for_bell(own.bell, heard, limit);
  own.sleeping.store(0);
}

}  // namespace ddp::shm
