// Which options contradict each other, and which options follow from others.
#pragma once

#include "launcher/plan/options.h"

namespace launcher {

// Throws UsageError for options that cannot be combined. Then sets options that follow from others (the number of ranks
// from --gpus, node 0's address from --rdzv_endpoint). Pure.
void check_options(Options& options);

}  // namespace launcher
