// Every option of ddprun.
#pragma once

#include "launcher/plan/options.h"

namespace CLI {
class App;
}

namespace launcher {

class OptionTable;

// Both must outlive the parsing, which fills `options`.
void declare_options(CLI::App& app, Options& options);
// A part of it.
void declare_elastic(OptionTable& table, ElasticOptions& elastic);
void declare_watching(OptionTable& table, Options& options);
// Options of torchrun that have another name in ddprun, or no effect.
void declare_torchruns(OptionTable& table, Options& options);
// Those of them that name other hosts and how they are reached.
void declare_hosts(OptionTable& table, Options& options);

}  // namespace launcher
