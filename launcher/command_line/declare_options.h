// Every option of ddprun.
#pragma once

#include <CLI/App.hpp>

#include "launcher/command_line/option_table.h"
#include "launcher/plan/options.h"

namespace launcher {

// Both must outlive the parsing, which fills `options`.
void declare_options(CLI::App& app, Options& options);
// Those of them that name other hosts and how they are reached.
void declare_hosts(OptionTable& table, Options& options);

}  // namespace launcher
