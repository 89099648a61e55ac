// Every option of ddprun: a file for each group.
#pragma once

#include <string>

#include "launcher/plan/options.h"

namespace launcher {

class OptionTable;

// All of them, in the order of --help. The table and `options` must outlive the parsing, which fills `options`; what is
// in `options` before are the defaults that the table shows.
void declare_options(OptionTable& table, Options& options);

// Whether torchrun has an option of this name, which has dashes or underscores inside.
bool is_torchruns_name(std::string name);

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
