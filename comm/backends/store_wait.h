// Internal: a wait for keys of a store that tells a timeout from success.
#pragma once

#include <chrono>
#include <exception>
#include <string>
#include <vector>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

/// Whether all `keys` are set within `limit`. Catches what the store throws at a timeout, which has no type of its own.
inline bool wait_until_set(c10d::Store& store, const std::vector<std::string>& keys, std::chrono::milliseconds limit) {
  try {
    store.wait(keys, limit);
    return true;
  } catch (const std::exception&) {
    return store.check(keys);
  }
}

}  // namespace ddp::detail
