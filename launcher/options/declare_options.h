// Declares every option of ddprun, with a file for each group.
#pragma once

#include <string>

#include "launcher/plan/options.h"

namespace launcher {

class OptionTable;

// Declares all options in the order of --help. The table and `options` must outlive the parsing, which fills `options`.
// The table shows the present values of `options` as defaults.
void declare_options(OptionTable& table, Options& options);

// Whether torchrun has an option of this name. The name may contain dashes or underscores.
bool is_torchrun_name(std::string name);

void declare_processes(OptionTable& table, Options& options);
void declare_hosts(OptionTable& table, Options& options);
void declare_resources(OptionTable& table, ResourceOptions& options);
void declare_rendezvous(OptionTable& table, RendezvousOptions& options);
void declare_elastic(OptionTable& table, ElasticOptions& options);
void declare_output(OptionTable& table, OutputOptions& options);
void declare_ending(OptionTable& table, EndingOptions& options);
void declare_watching(OptionTable& table, WatchOptions& options);
// Options of torchrun that have another name in ddprun, or no effect.
void declare_torchruns(OptionTable& table, Options& options);
void declare_information(OptionTable& table, Options& options);

}  // namespace launcher
