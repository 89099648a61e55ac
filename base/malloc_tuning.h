// Allocator settings for training loops.
#pragma once

namespace ddp {

/// Makes glibc's malloc keep the freed blocks of a training step for the next step instead of returning them to the
/// kernel. Otherwise LeNet with batch size 128 spends a third of its time in page faults. Does nothing if
/// DDPRUN_MALLOPT=0 is set or the build defines DDPRUN_NO_MALLOPT. Respects MALLOC_MMAP_THRESHOLD_ and
/// MALLOC_TRIM_THRESHOLD_ if they are set.
void tune_malloc();

/// During the lifetime of this object, malloc returns freed blocks of some hundred kilobytes to the system. Use it
/// while a model is built in pieces: otherwise small blocks between the large ones would keep the freed memory in the
/// heap. Must not be used in several threads at the same time. Does nothing if MALLOC_MMAP_THRESHOLD_ is set.
class FreedMemoryReturns {
 public:
  FreedMemoryReturns();
  ~FreedMemoryReturns();
  FreedMemoryReturns(const FreedMemoryReturns&) = delete;
  FreedMemoryReturns& operator=(const FreedMemoryReturns&) = delete;
};

}  // namespace ddp
