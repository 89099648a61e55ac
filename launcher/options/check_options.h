// Which options contradict each other, and what follows from which.
#pragma once

#include "launcher/plan/options.h"

namespace launcher {

// Throws UsageError for options that cannot be meant together; then fills in what other options imply (the number of
// ranks from --gpus, node 0's address from --rdzv_endpoint). Pure.
void check_options(Options& options);

}  // namespace launcher
