// The report of an analysis, as text for a terminal and as JSON.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "timeline/analysis.h"
#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// No table is wider than `columns`, the width of the terminal; 0: tables have their natural width.
std::string report_text(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis,
                        std::size_t columns = 0);
// One JSON object; times are milliseconds.
std::string report_json(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis);

}  // namespace ddp::timelines
