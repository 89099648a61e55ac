// Internal: c10d's monitored barrier over messages: rank 0 finds out which ranks do not come.
#pragma once

#include <chrono>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

struct MonitoredBarrier {
  std::chrono::milliseconds timeout{};
  bool names_all_missing =
      false;       ///< rank 0 waits for each rank, so that its error names all that are missing; else the first
  int number = 0;  ///< of this barrier among those of the group
};

/// As ProcessGroupGloo's: rank 0 throws std::runtime_error that says which rank has not called it within the timeout,
/// the others throw once rank 0 has given up. Every rank of `backend` calls it, in the same order.
void monitored_barrier(c10d::Backend& backend, const MonitoredBarrier& barrier);

}  // namespace ddp::detail
