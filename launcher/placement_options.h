// The command line's options on where ranks run and how the job begins and ends beyond the basic ones: their values as
// CLI11 fills them, their declaration, and their checks.
#pragma once

#include <string>

#include "launcher/options.h"

namespace CLI {
class App;
}

namespace launcher {

struct PlacementValues {
  std::string gpus{};
  bool virtual_local_rank = false;
  std::string binding = "none";
  std::string store = "agent";
  double start_timeout_seconds = 0;
  std::string exit_code = "worker";
  std::string signals{};
  int debug_rank = 0;
};

// `values` must outlive the parsing.
void declare_placement_options(CLI::App& app, PlacementValues& values);

// Fills the fields of `options`; returns what is wrong with the values, "" when nothing is. The number of ranks follows
// --gpus unless it was given itself.
std::string read_placement_options(const CLI::App& app, const PlacementValues& values, Options& options);

}  // namespace launcher
