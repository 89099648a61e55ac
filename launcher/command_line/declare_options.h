// Every option of ddprun.
#pragma once

#include "launcher/plan/options.h"

namespace CLI {
class App;
}

namespace launcher {

// Both must outlive the parsing, which fills `options`.
void declare_options(CLI::App& app, Options& options);

}  // namespace launcher
