// Who delays a job in which no rank makes progress. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

struct Verdict {
  enum class Kind : std::uint8_t {
    kDifferentCalls,  // ranks have called different collectives in the same place
    kStopped,         // a process is stopped by a signal
    kMissing,         // ranks wait for one that has not entered their collective
    kCycle,           // ranks wait for each other, in different groups
    kUnfinished,      // all have entered, and it does not end
    kNoneWaits,       // no rank waits in a collective
    kUnseen,          // no rank tells anything
    kNotAtStore,      // ranks have not come to the store, where others are
  };
  Kind kind = Kind::kUnseen;
  std::vector<int> culprits{};  // ranks; those of kNoneWaits are all that make no progress
  std::optional<int> waiter{};  // one that waits for them
  std::string sentence{};
};

// `now`: microseconds of the clock of the pages.
Verdict judge(const std::vector<RankView>& ranks, std::uint64_t now);

}  // namespace launcher
