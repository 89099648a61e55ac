// The report on ranks that make no progress. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/observe/watch/verdict.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

// A table with one row per rank. `now`: microseconds of the clock of the pages. `columns`: of the terminal, 0 where
// there is none.
std::string rank_table(const std::vector<RankView>& ranks, std::uint64_t now, std::size_t columns = 0);

// A rank's stack as lines, or why it is missing.
struct RankStack {
  int rank = 0;
  std::string text{};
};

struct HangReport {
  Verdict verdict{};
  std::chrono::microseconds idle{};  // for so long no rank has made progress
  bool is_shown_elsewhere = false;   // node 0 prints the table
  std::vector<RankView> views{};     // of the table
};

// Lines with "ddprun: " in front of the first and the last but the stacks.
std::string to_text(const HangReport& report, const std::vector<RankStack>& stacks, std::uint64_t now,
                    std::size_t columns = 0);

}  // namespace launcher
