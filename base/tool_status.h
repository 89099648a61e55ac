// Exit statuses of ddprun-checkpoint, ddprun-curves and ddprun-timeline.
#pragma once

#include <cstdio>

namespace ddp::tool_status {

inline constexpr int kGood = 0;
inline constexpr int kFailed = 1;   // what could not be read or written, or is damaged or something else
inline constexpr int kMisused = 2;  // the command line, as with most programs

// Whether standard output has got everything; says so in `tool`'s name where it has not.
inline bool output_is_written(const char* tool) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return true;
  std::fprintf(stderr, "%s: standard output cannot be written\n", tool);
  return false;
}

}  // namespace ddp::tool_status
