// Draws one step of all ranks as a picture.
#pragma once

#include <string>

#include "timeline/analysis.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// Draws the representative step: the activities of each rank with its buckets, and a frame around the critical path.
// The picture is readable on light and dark pages.
std::string draw_svg(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis);

}  // namespace ddp::timelines
