// Formats ranks and how they ended. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "base/joined.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

inline constexpr std::size_t kMaxRanksListed = 8;

// Returns "rank 3" or "ranks 0, 1, 3"; if there are many, the rest is a number.
inline std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  const std::size_t most = ranks.size() == kMaxRanksListed + 1 ? ranks.size() : kMaxRanksListed;
  return (ranks.size() == 1 ? "rank " : "ranks ") + ddp::detail::joined_some(ranks, most);
}

// "0.5 s"
inline std::string seconds_text(std::chrono::milliseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", static_cast<double>(time.count()) / 1000);
  return text.data();
}

// "exited with status 7", "was killed by SIGSEGV (core dumped)".
inline std::string describe_end(const RankEnd& rank) {
  if (rank.signal != 0) {
    return "was killed by " + signal_name(rank.signal) + (rank.core_dumped ? " (core dumped)" : "");
  }
  return rank.exit_code == 0 ? "ended normally" : "exited with status " + std::to_string(rank.exit_code);
}

}  // namespace launcher
