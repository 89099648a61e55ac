// The beginning of an error that is raised where no process group is at hand, and numbers as Python writes them. No
// LibTorch here.
#pragma once

#include <string>

namespace ddp {

/// "rank 1 of 2: ", from the launcher's variables; empty when they contradict each other, which is
/// init_process_group()'s business to report.
std::string rank_prefix();

/// The number as Python's f-strings write it: 0.1, 1.0, 1e-05, nan.
std::string number_text(double value);

}  // namespace ddp
