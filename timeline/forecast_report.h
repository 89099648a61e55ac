// What a forecast says, for a terminal and for programs.
#pragma once

#include <cstddef>
#include <string>

#include "timeline/cycles.h"
#include "timeline/forecast.h"

namespace ddp::timelines {

// The ranks up to which the curve goes at least.
inline constexpr std::int64_t kCurveEnd = 1024;

// `columns`: of the terminal; 0: tables are as wide as they come.
std::string forecast_text(const Cycles& cycles, const Scenario& scenario, std::size_t columns = 0);
// One JSON object; times are milliseconds.
std::string forecast_json(const Cycles& cycles, const Scenario& scenario);

}  // namespace ddp::timelines
