// Divides a recording into cycles: on each rank, from the end of one backward that reduced gradients to the end of the
// next one. Waits for other ranks, evaluation and checkpoints are subtracted. The remaining time is the rank's own
// computation, which does not depend on the network.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// All times except `recorded` and `other_waits` are nanoseconds of the rank's own computation since the start of the
// cycle.
struct Cycle {
  double computing = 0;         // the time at the end of the cycle
  double backward = 0;          // the start of the backward that ends the cycle
  std::vector<double> ready{};  // when all gradients of each bucket are ready, in the order of the reductions
  double recorded = 0;          // the duration including all waits, but without evaluation and checkpoints
  double other_waits = 0;       // the waits for other ranks, except those for gradients
};

struct Cycles {
  std::vector<std::int64_t> bucket_bytes{};  // the bucket sizes of each cycle, in order
  std::vector<Cycle> all{};                  // the cycles of all ranks
  std::map<int, std::size_t> steps{};        // the number of cycles of each rank that has any
  std::size_t ranks_in_file = 0;             // including ranks without cycles
  std::size_t left_out = 0;  // on one rank, at most: ignored cycles, with other bucket sizes than most cycles
  std::uint64_t lost = 0;    // events that were not recorded, see Trace
  bool is_cut_off = false;   // see Trace
};

// Uses the ranges of the devices if they were recorded, otherwise those of the hosts. Throws TraceError if fewer than
// two ranks have cycles; the message says what is missing.
Cycles cycles_of(const Trace& trace, const std::map<int, RankLine>& lines);

}  // namespace ddp::timelines
