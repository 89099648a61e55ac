// What an analysis says, for a terminal and for programs.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "timeline/analysis.h"
#include "timeline/rank_lines.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// No table is wider than `columns`, of the terminal; 0: they are as wide as they come.
std::string report_text(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis,
                        std::size_t columns = 0);
// One JSON object; times are milliseconds.
std::string report_json(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis);

}  // namespace ddp::timelines
