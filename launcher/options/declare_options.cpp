#include "launcher/options/declare_options.h"

#include <CLI/App.hpp>

#include <algorithm>

#include "launcher/options/option_table.h"

namespace launcher {

void declare_options(OptionTable& table, Options& options) {
  declare_processes(table, options);
  declare_hosts(table, options);
  declare_resources(table, options);
  declare_rendezvous(table, options);
  declare_elastic(table, options.elastic);
  declare_output(table, options);
  declare_ending(table, options);
  declare_watching(table, options);
  declare_torchruns(table, options);
  declare_information(table, options);
}

bool is_torchrun_name(std::string name) {
  CLI::App app;
  Options options;
  OptionTable table(app);
  declare_options(table, options);
  std::replace(name.begin(), name.end(), '-', '_');
  const auto names = table.torchrun_names();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace launcher
