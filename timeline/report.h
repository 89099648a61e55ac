// Reports an analysis, as text for a terminal or as JSON.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "timeline/analysis.h"
#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// `columns` is the width of the terminal, which no table exceeds. If it is 0, tables have their natural width.
std::string report_text(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis,
                        std::size_t columns = 0);
// Returns one JSON object with times in milliseconds.
std::string report_json(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis);

}  // namespace ddp::timelines
