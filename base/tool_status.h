// Exit statuses of ddprun-checkpoint, ddprun-curves and ddprun-timeline.
#pragma once

namespace ddp::tool_status {

inline constexpr int kGood = 0;
inline constexpr int kFailed = 1;   // what could not be read or written, or is damaged or something else
inline constexpr int kMisused = 2;  // the command line, as with most programs

}  // namespace ddp::tool_status
