// What a rank's end means when its status or its last words are those of a well-known trouble. Pure.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <string>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// What the ranks run under, and what they have used.
struct EndContext {
  rlim_t cpu_seconds = RLIM_INFINITY;   // ulimit -t
  double used_cpu_seconds = 0;          // of all ranks that have ended
  rlim_t file_bytes = RLIM_INFINITY;    // ulimit -f
  rlim_t memory_bytes = RLIM_INFINITY;  // ulimit -v
  std::uint64_t free_shared_bytes = 1;  // of /dev/shm
};

// Of this process, here and now.
EndContext end_context();

// The cause and what to do, or "".
std::string end_cause(const RankEnd& rank, const EndContext& context);

}  // namespace launcher
