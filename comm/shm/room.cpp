#include "comm/shm/room.h"

#include <algorithm>

#include "comm/shm/processor_choice.h"

namespace ddp::shm {

namespace {

// Others have read this line: it is fetched back before it is written, while this rank is still busy with something
// else. Without effect where a processor has no such instruction.
void expect_write(const SlotHeader& header) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(header));
#else
  __builtin_prefetch(&header, 1);
#endif
}

}  // namespace

bool Room::has_slot(uint64_t round) {
  for (int other = 0; other < size(); ++other) {
    uint64_t& known = known_taken_[static_cast<size_t>(other)];
    if (other == rank_ || round < known + kSlots) continue;
    known = std::max(known, segment_.block(other).taken.load());
    if (round >= known + kSlots) return false;
  }
  return true;
}

const Signature& Room::signature_of(int rank, uint64_t round) {
  const SlotHeader& header = segment_.slot_header(rank, round);
  uint64_t& known = known_taken_[static_cast<size_t>(rank)];
  known = std::max(known, header.taken);
  return header.signature;
}

int Room::reader_of_slot(uint64_t round) const {
  for (int other = 0; other < size(); ++other) {
    if (other != rank_ && segment_.block(other).taken.load() + kSlots <= round) return other;
  }
  return rank_;
}

bool Room::shares_processor_with(int rank) const {
  return segment_.block(rank).processor.load(std::memory_order_relaxed) == 1 + current_processor();
}

void Room::note_processor() {
  const int processor = 1 + current_processor();
  if (processor == std::exchange(processor_, processor)) return;
  segment_.block(rank_).processor.store(processor, std::memory_order_relaxed);
}

std::vector<int> Room::processors_of_others() const {
  std::vector<int> processors;
  for (int other = 0; other < size(); ++other) {
    const int seen = segment_.block(other).processor.load(std::memory_order_relaxed);
    if (other != rank_ && seen > 0) processors.push_back(seen - 1);
  }
  return processors;
}

void Room::filled(uint64_t round, const Signature& signature) {
  SlotHeader& header = segment_.slot_header(rank_, round);
  header.signature = signature;
  header.taken = taken_;
  header.stamp.store(round + 1);
  wake_others(Cause::data_of(rank_));
}

void Room::combined(uint64_t round) {
  segment_.block(rank_).combined.store(round + 1);
  wake_others(Cause::data_of(rank_));
}

void Room::taken(uint64_t round) {
  taken_ = round + 1;
  segment_.block(rank_).taken.store(round + 1);
  expect_write(segment_.slot_header(rank_, round + 1));
  wake_others(Cause::room_of(rank_));
}

void Room::wake_others(Cause cause) const {
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) wake(segment_.block(other), cause);
  }
}

}  // namespace ddp::shm
