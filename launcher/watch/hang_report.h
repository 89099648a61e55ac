// The report on ranks that get nowhere. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "launcher/watch/rank_view.h"
#include "launcher/watch/verdict.h"

namespace launcher {

// A table with one row per rank. `now`: microseconds of the clock of the pages.
std::string rank_table(const std::vector<RankView>& ranks, std::uint64_t now);

// A rank's stack, as lines; or why there is none.
struct RankStack {
  int rank = 0;
  std::string text{};
};

// Lines with "ddprun: " in front of the first and the last but the stacks.
std::string hang_report(const std::vector<RankView>& ranks, const Verdict& verdict,
                        const std::vector<RankStack>& stacks, std::uint64_t idle_us, std::uint64_t now);

}  // namespace launcher
