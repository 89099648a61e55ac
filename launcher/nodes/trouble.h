// What a node does that cannot start its part of a job on several nodes.
#pragma once

#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// Meets the other nodes to tell them, so that they do not wait for this one, and returns when they know or when they
// have not come within seconds. Returns the status with which all end; its own where it is alone.
int tell_other_nodes(const Options& options, const JoinFailure& trouble);

}  // namespace launcher
