// What ranks were in the middle of when recording began, and are still when it ends: of a job that hangs there is
// nothing else to record.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/progress/page_reader.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

class OpenEvents {
 public:
  // Recording begins: looks at the pages of the ranks.
  void note(const std::vector<WatchedRank>& ranks);
  // Recording ends: for each rank that told a phase or entered a collective before, and has not left it, the records
  // of a thread that did so when recording began. Forgets what was noted.
  struct RankRecords {
    int rank = 0;
    std::vector<std::uint64_t> words{};
  };
  std::vector<RankRecords> take(const std::vector<WatchedRank>& ranks);

 private:
  std::uint64_t begin_ = 0;  // nanoseconds
  std::map<int, ddp::detail::ProgressSnapshot> noted_;
};

}  // namespace launcher
