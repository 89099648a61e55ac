// A recorded training, divided into cycles: on each rank, from the end of one backward that reduced gradients to the
// end of the next one. Waits for other ranks, evaluation and checkpoints are subtracted. The remaining time is the
// rank's own computation, which does not depend on the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// Times are nanoseconds of the rank's own computation since the begin of the cycle.
struct Cycle {
  double computing = 0;         // the time at its end
  double backward = 0;          // when the backward begins that ends the cycle
  std::vector<double> ready{};  // when each bucket has all its gradients, in the order of the reductions
  double recorded = 0;          // the duration with all waits, without evaluation and checkpoints
  double other_waits = 0;       // the waits for other ranks, apart from those for gradients
};

struct Cycles {
  std::vector<std::int64_t> bucket_bytes{};  // of each cycle, in order
  std::vector<Cycle> all{};                  // of all ranks
  std::size_t ranks = 0;                     // ranks that have cycles
  std::size_t left_out = 0;                  // cycles whose buckets have other sizes than most
};

// Of the devices where their ranges were recorded, else of the hosts. Throws TraceError, which says what is missing,
// where there is no cycle.
Cycles cycles_of(const Trace& trace, const std::map<int, RankLine>& lines);

}  // namespace ddp::timelines
