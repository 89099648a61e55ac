// Variables in ddprun's own environment that torchrun reads besides PET_<option>, and PET_ variables of no option.
#pragma once

#include "launcher/plan/options.h"

namespace CLI {
class App;
}

namespace launcher {

// To be called when `app` has parsed the command line. Sets the grace time from --shutdown_timeout, or from
// TORCH_ELASTIC_SHUTDOWN_TIMEOUT where neither it nor --grace is given, and adds a note for each variable that has no
// effect. Throws UsageError for a value that torchrun refuses as well, and for two grace times.
void take_torchruns_variables(const CLI::App& app, Options& options);

}  // namespace launcher
