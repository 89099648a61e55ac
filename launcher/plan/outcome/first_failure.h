// Which rank's failure caused the others. Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// When the rank's trouble began, in seconds since the epoch: when it wrote its error file, if that is believable, else
// when it ended. A time in whole seconds means any moment of that second, so it counts as its end.
double trouble_time(const RankEnd& rank, const JobEnd& job);

// The rank's error message, or without one its last lines, says that another rank went away: it did not fail on its
// own.
bool is_consequence(const RankEnd& rank);
// A consequence whose words fit a failure of its own as well: "Connection refused" comes from a peer that is gone, and
// from any other server that is not there.
bool is_vague_consequence(const RankEnd& rank);

// Index in `ranks` of the failure that caused the others; nothing when no rank failed on its own. A rank that wrote an
// error file before another one ended was first, however long it took to end. Where the other nodes have been told of
// one, it is that.
std::optional<std::size_t> first_failure(const JobEnd& job);

}  // namespace launcher
