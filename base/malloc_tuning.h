// Allocator settings for training loops.
#pragma once

namespace ddp {

/// Tells glibc's malloc to keep freed blocks of a training step for the next one instead of returning them to the
/// kernel: LeNet with batch 128 spends a third of its time in page faults otherwise. DDPRUN_MALLOPT=0, or a build with
/// DDPRUN_NO_MALLOPT defined, leaves malloc alone; so do MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ when set.
void tune_malloc();

/// While it lives, the C library gives freed memory of some hundred kilobytes back to the system, where it would keep
/// it: for a construction of a model in pieces, whose small blocks would keep the large ones between them. Not for
/// several threads at once. Nothing where MALLOC_MMAP_THRESHOLD_ is set.
class FreedMemoryReturns {
 public:
  FreedMemoryReturns();
  ~FreedMemoryReturns();
  FreedMemoryReturns(const FreedMemoryReturns&) = delete;
  FreedMemoryReturns& operator=(const FreedMemoryReturns&) = delete;
};

}  // namespace ddp
