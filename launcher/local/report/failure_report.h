// The report for the user on how a job ended. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// Returns the lines, without the first, that the other nodes print about the first failure of `job`. `first` is the
// failure's index in `ranks`.
std::vector<std::string> failure_details(const JobEnd& job, std::size_t first);

// Returns about ten lines; empty when there is nothing to report.
std::string failure_report(const JobEnd& job);

}  // namespace launcher
