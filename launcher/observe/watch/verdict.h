// Finds the rank that delays a job in which no rank makes progress.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

struct Verdict {
  enum class Kind : std::uint8_t {
    kDifferentCalls,  // ranks have called different collectives with the same number
    kStopped,         // a process is stopped by a signal
    kMissing,         // ranks wait for one that has not entered their collective
    kCycle,           // ranks wait for each other, in different groups
    kUnfinished,      // all ranks have entered a collective that does not complete
    kNoneWaits,       // no rank waits in a collective
    kUnseen,          // no rank has a progress page
    kNotAtStore,      // ranks have not connected to the store, where others wait
  };
  Kind kind = Kind::kUnseen;
  std::vector<int> culprits{};  // ranks; for kNoneWaits all ranks that make no progress
  std::optional<int> waiter{};  // a rank that waits for them
  std::string sentence{};
  // The sentence with "since 14:03:12" instead of "for 121 s", which remains true while the hang lasts.
  std::string lasting_sentence{};
};

// `now` is in microseconds of the page clock, `wall_time` is the same moment.
Verdict diagnose_hang(const std::vector<RankView>& ranks, std::uint64_t now,
                      std::chrono::system_clock::time_point wall_time = std::chrono::system_clock::now());

}  // namespace launcher
