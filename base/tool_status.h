// Exit statuses of ddprun-checkpoint, ddprun-curves and ddprun-timeline.
#pragma once

#include <cstdio>

namespace ddp::tool_status {

inline constexpr int kGood = 0;
inline constexpr int kFailed = 1;   // a file cannot be read or written, is damaged or is of the wrong kind
inline constexpr int kMisused = 2;  // wrong command line, as in most programs

// Returns whether all output was written to standard output. If not, prints an error that names `tool`.
inline bool output_is_written(const char* tool) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  std::fprintf(stderr, "%s: standard output cannot be written\n", tool);
  return false;
}

}  // namespace ddp::tool_status
