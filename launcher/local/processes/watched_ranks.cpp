#include "launcher/local/processes/watched_ranks.h"

#include "launcher/plan/outcome/describe.h"

namespace launcher {

std::vector<WatchedRank> watched_ranks(const WorkerGroup& workers, const JobEnd& end) {
  std::vector<WatchedRank> ranks;
  for (const Worker& worker : workers.workers()) {
    ranks.push_back({.rank = worker.plan.place.rank,
                     .pid = worker.process.pid,
                     .page = worker.page.page(),
                     .ended = worker.running ? "" : "ended",
                     .timeline = worker.timeline.ring()});
  }
  for (const RankEnd& rank : end.ranks) ranks[static_cast<std::size_t>(rank.local_rank)].ended = describe_end(rank);
  return ranks;
}

}  // namespace launcher
