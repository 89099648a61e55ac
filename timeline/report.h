// What an analysis says, for a terminal and for programs.
#pragma once

#include <string>

#include "timeline/analysis.h"
#include "timeline/trace.h"

namespace ddp::timelines {

std::string report_text(const Trace& trace, const Analysis& analysis);
// One JSON object; times are milliseconds.
std::string report_json(const Trace& trace, const Analysis& analysis);

// "12.3 ms", "4.1 us"
std::string time_text(double nanoseconds);

}  // namespace ddp::timelines
