#include "comm/shm/slot_access.h"

#include <algorithm>

#include "comm/shm/processor_choice.h"

namespace ddp::shm {

int SlotAccess::reader_of_slot(uint64_t round) const {
  for (int other = 0; other < size(); ++other) {
    if (other != rank_ && segment_.block(other).taken.load() + kSlots <= round) return other;
  }
  return rank_;
}

bool SlotAccess::shares_processor_with(int rank) const {
  return segment_.block(rank).processor.load(std::memory_order_relaxed) == 1 + current_processor();
}

void SlotAccess::note_processor() {
  const int processor = 1 + current_processor();
  if (processor == std::exchange(processor_, processor)) return;
  segment_.block(rank_).processor.store(processor, std::memory_order_relaxed);
}

std::vector<int> SlotAccess::other_rank_processors() const {
  std::vector<int> processors;
  for (int other = 0; other < size(); ++other) {
    const int seen = segment_.block(other).processor.load(std::memory_order_relaxed);
    if (other != rank_ && seen > 0) processors.push_back(seen - 1);
  }
  return processors;
}

}  // namespace ddp::shm
