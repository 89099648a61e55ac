// Short names for the memory orders that lock-free code uses in almost every line.
#pragma once

#include <atomic>

namespace ddp::detail {

inline constexpr auto kRelaxed = std::memory_order_relaxed;
inline constexpr auto kAcquire = std::memory_order_acquire;
inline constexpr auto kRelease = std::memory_order_release;

}  // namespace ddp::detail
