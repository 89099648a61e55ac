// Allocator settings for training loops.
#pragma once

namespace ddp {

/// Tells glibc's malloc to keep freed blocks of a training step for the next one instead of returning them to the
/// kernel: LeNet with batch 128 spends a third of its time in page faults otherwise. DDPRUN_MALLOPT=0, or a build with
/// DDPRUN_NO_MALLOPT defined, leaves malloc alone; so do MALLOC_MMAP_THRESHOLD_ and MALLOC_TRIM_THRESHOLD_ when set.
void tune_malloc();

}  // namespace ddp
