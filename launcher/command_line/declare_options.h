// Every option of ddprun.
#pragma once

#include <CLI/App.hpp>

#include "launcher/plan/options.h"

namespace launcher {

// Both must outlive the parsing, which fills `options`.
void declare_options(CLI::App& app, Options& options);

}  // namespace launcher
