// Internal: a rank's place in the shared memory of its group, as its operations see it. One thread at a time. No
// LibTorch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "comm/shm/futex_sleep.h"
#include "comm/shm/segment.h"

namespace ddp::shm {

// Others have read this line: it is fetched back before it is written, while this rank is still busy with something
// else. Without effect where a processor has no such instruction.
inline void expect_write(const SlotHeader& header) {
#if defined(__x86_64__)
  asm volatile("prefetchw %0" : : "m"(header));
#else
  __builtin_prefetch(&header, 1);
#endif
}

class SlotAccess {
 public:
  SlotAccess(Segment segment, int rank)
      : segment_(std::move(segment)), rank_(rank), known_taken_(static_cast<size_t>(segment_.ranks())) {}

  const Segment& segment() const { return segment_; }
  int rank() const { return rank_; }
  int size() const { return segment_.ranks(); }

  /// The next `rounds` rounds are one operation's: the number of the first. All ranks claim alike.
  uint64_t claim(uint64_t rounds) { return std::exchange(next_round_, next_round_ + rounds); }

  /// Whether this rank may fill its slot of `round`: no rank reads its old content any more.
  bool has_slot(uint64_t round);
  /// A rank that still reads it.
  int reader_of_slot(uint64_t round) const;

  bool has_filled(int rank, uint64_t round) const {
    return segment_.slot_header(rank, round).stamp.load() == round + 1;
  }
  /// The first `bytes` of its slot are about to be read.
  void expect_data(int rank, uint64_t round, size_t bytes) const {
    const std::byte* const data = segment_.slot(rank, round);
    for (size_t at = 0; at < bytes; at += kLine) __builtin_prefetch(data + at);
  }
  /// What `rank` has called, which has filled; and what that implies for the rounds that it has taken is stored.
  const Signature& signature_of(int rank, uint64_t round);
  bool has_combined(int rank, uint64_t round) const { return segment_.block(rank).combined.load() > round; }

  /// Tells the others on which processor this rank runs.
  void note_processor();
  /// As last noted, counted from 0.
  int processor() const { return processor_ - 1; }
  /// Where the others have been seen last.
  std::vector<int> other_rank_processors() const;
  /// Whether `rank` has last been seen on the processor of this one: then it cannot run before this one sleeps.
  bool shares_processor_with(int rank) const;

  void filled(uint64_t round, const Signature& signature);
  void combined(uint64_t round);
  /// In `round` this rank reads no slot any more.
  void taken(uint64_t round);

 private:
  void wake_others(WaitCondition condition) const;

  const Segment segment_;
  const int rank_;
  uint64_t next_round_ = 0;
  uint64_t taken_ = 0;                 // rounds
  int processor_ = 0;                  // as in the rank's block
  std::vector<uint64_t> known_taken_;  // by each rank, as far as known
};

// Here, since calls cost as much as what they do.
inline bool SlotAccess::has_slot(uint64_t round) {
  for (int other = 0; other < size(); ++other) {
    uint64_t& known = known_taken_[static_cast<size_t>(other)];
    if (other == rank_ || round < known + kSlots) continue;
    known = std::max(known, segment_.block(other).taken.load());
    if (round >= known + kSlots) return false;
  }
  return true;
}

inline const Signature& SlotAccess::signature_of(int rank, uint64_t round) {
  const SlotHeader& header = segment_.slot_header(rank, round);
  uint64_t& known = known_taken_[static_cast<size_t>(rank)];
  known = std::max(known, header.taken);
  return header.signature;
}

inline void SlotAccess::filled(uint64_t round, const Signature& signature) {
  SlotHeader& header = segment_.slot_header(rank_, round);
  header.signature = signature;
  header.taken = taken_;
  header.stamp.store(round + 1);
  wake_others(WaitCondition::data_of(rank_));
}

inline void SlotAccess::combined(uint64_t round) {
  segment_.block(rank_).combined.store(round + 1);
  wake_others(WaitCondition::data_of(rank_));
}

inline void SlotAccess::taken(uint64_t round) {
  taken_ = round + 1;
  segment_.block(rank_).taken.store(round + 1);
  expect_write(segment_.slot_header(rank_, round + 1));
  wake_others(WaitCondition::free_slot_of(rank_));
}

inline void SlotAccess::wake_others(WaitCondition condition) const {
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) wake(segment_.block(other), condition);
  }
}

}  // namespace ddp::shm
