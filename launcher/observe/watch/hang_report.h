// The report on ranks that make no progress. Pure.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "launcher/observe/watch/verdict.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

// A table with one row per rank. `now` is in microseconds of the page clock. `columns` is the width of the terminal, 0
// without one.
std::string rank_table(const std::vector<RankView>& ranks, std::uint64_t now, std::size_t columns = 0);

// A rank's stack as lines, or why it is missing.
struct RankStack {
  int rank = 0;
  std::string text{};
};

struct HangReport {
  Verdict verdict{};
  std::chrono::microseconds idle{};               // how long no rank had made progress
  std::chrono::system_clock::time_point found{};  // when this node learned of it; the stacks take more time
  bool is_shown_elsewhere = false;                // node 0 prints the table
  std::vector<RankView> views{};                  // the ranks of the table
};

// Returns the text of the report. Only its first line and its sentence begin with "ddprun: ".
std::string to_text(const HangReport& report, const std::vector<RankStack>& stacks, std::uint64_t now,
                    std::size_t columns = 0);

}  // namespace launcher
