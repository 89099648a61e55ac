// Every option of ddprun.
#pragma once

#include <CLI/App.hpp>

#include "launcher/plan/options.h"

namespace launcher {

class OptionTable;

// Both must outlive the parsing, which fills `options`.
void declare_options(CLI::App& app, Options& options);
// A part of it.
void declare_elastic(OptionTable& table, ElasticOptions& elastic);

}  // namespace launcher
