// Reports a forecast, as text for a terminal or as JSON.
#pragma once

#include <cstddef>
#include <string>

#include "timeline/cycles.h"
#include "timeline/forecast.h"

namespace ddp::timelines {

// The curve extends to at least this number of ranks.
inline constexpr std::int64_t kCurveEnd = 1024;

// `columns` is the width of the terminal. If it is 0, tables have their natural width.
std::string forecast_text(const Cycles& cycles, const Scenario& scenario, std::size_t columns = 0);
// Returns one JSON object with times in milliseconds.
std::string forecast_json(const Cycles& cycles, const Scenario& scenario);

}  // namespace ddp::timelines
