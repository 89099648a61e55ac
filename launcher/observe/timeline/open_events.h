// Phases and collectives that were open when recording began and are still open when it ends. For a job that hangs
// there is nothing else to record.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "base/progress/page_reader.h"
#include "launcher/observe/watch/watched_rank.h"

namespace launcher {

class OpenEvents {
 public:
  // Call it when recording begins. Reads the pages of the ranks.
  void note(const std::vector<WatchedRank>& ranks);
  // Call it when recording ends. Returns, for each rank that is still in the phase or collective that note() found, the
  // records of a thread that entered it when recording began. Forgets what note() found.
  struct RankRecords {
    int rank = 0;
    std::vector<std::uint64_t> words{};
  };
  std::vector<RankRecords> take(const std::vector<WatchedRank>& ranks);

 private:
  std::uint64_t begin_ = 0;  // nanoseconds
  std::map<int, ddp::detail::ProgressSnapshot> snapshots_;
};

}  // namespace launcher
