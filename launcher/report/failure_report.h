// The report for the user on what became of a job. Pure.
#pragma once

#include <string>

#include "launcher/outcome/job_end.h"

namespace launcher {

// About ten lines; empty when there is nothing to say.
std::string failure_report(const JobEnd& job);

}  // namespace launcher
