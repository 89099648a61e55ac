// The report for the user on what became of a job. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// What the other nodes are to print of the first failure of `job`, whose index in `ranks` is `first`: its lines but the
// first one.
std::vector<std::string> failure_details(const JobEnd& job, std::size_t first);

// About ten lines; empty when there is nothing to say.
std::string failure_report(const JobEnd& job);

}  // namespace launcher
