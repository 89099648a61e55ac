#include "launcher/plan/outcome/describe.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include "launcher/os/system/signals.h"

namespace launcher {
namespace {

constexpr std::size_t kMaxRanksListed = 8;

}  // namespace

std::string rank_list(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i == kMaxRanksListed && ranks.size() > kMaxRanksListed + 1) {
      return text + " and " + std::to_string(ranks.size() - i) + " more";
    }
    if (i > 0) text += ", ";
    text += std::to_string(ranks[i]);
  }
  return text;
}

std::string seconds_text(std::chrono::milliseconds time) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g s", static_cast<double>(time.count()) / 1000);
  return text.data();
}

std::string describe_end(const RankEnd& rank) {
  if (rank.signal != 0) {
    return "was killed by " + signal_name(rank.signal) + (rank.core_dumped ? " (core dumped)" : "");
  }
  return rank.exit_code == 0 ? "ended normally" : "exited with status " + std::to_string(rank.exit_code);
}

}  // namespace launcher
