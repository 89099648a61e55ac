// The report of a forecast, as text for a terminal and as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "timeline/cycles.h"
#include "timeline/forecast.h"

namespace ddp::timelines {

// The curve has at least this many ranks.
inline constexpr std::int64_t kCurveEnd = 1024;

// `columns`: the width of the terminal; 0: tables have their natural width.
std::string forecast_text(const Cycles& cycles, const Scenario& scenario, std::size_t columns = 0);
// One JSON object; times are milliseconds.
std::string forecast_json(const Cycles& cycles, const Scenario& scenario);

}  // namespace ddp::timelines
