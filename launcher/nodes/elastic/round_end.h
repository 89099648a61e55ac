// What the first failure of a round means for the job. Pure.
#pragma once

#include "launcher/nodes/elastic/rounds.h"
#include "launcher/plan/outcome/job_end.h"

namespace launcher::elastic {

// `is_replaceable`: another launcher can take the coordinator's place.
Rounds::Cause cause_of(const FailureNotice& first, bool is_replaceable);
// The coordinator's launcher ends, and another one takes its place.
bool hands_over(const FailureNotice& first, Rounds::Cause cause);

}  // namespace launcher::elastic
