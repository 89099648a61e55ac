// Finds the rank whose failure caused the others. Pure.
#pragma once

#include <cstddef>
#include <optional>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// When the rank's failure began, in seconds since the epoch: when it wrote its error file, if that time is plausible,
// else when it ended. A time in whole seconds counts as the end of that second.
double failure_time(const RankEnd& rank, const JobEnd& job);

// True when the rank's error message, or without one its last lines, report that another rank is gone: then it did not
// fail on its own.
bool is_consequence(const RankEnd& rank);
// True when the message of such a rank may also mean a failure of its own: "Connection refused" comes from a peer that
// is gone, but also from any other server that is not there.
bool is_ambiguous_consequence(const RankEnd& rank);

// The index in `ranks` of the failure that caused the others; nothing when no rank failed on its own. A rank that wrote
// an error file before another one ended was first, even if it ended later. If a failure was announced to the other
// nodes, it is that one.
std::optional<std::size_t> first_failure(const JobEnd& job);

}  // namespace launcher
