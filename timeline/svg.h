// One step of all ranks as a picture.
#pragma once

#include <string>

#include "timeline/analysis.h"
#include "timeline/trace.h"

namespace ddp::timelines {

// The representative step: for each rank what it does, and its buckets beside that; the critical path has a frame. Fits
// light and dark pages.
std::string draw_svg(const Trace& trace, const std::map<int, RankLine>& lines, const Analysis& analysis);

}  // namespace ddp::timelines
