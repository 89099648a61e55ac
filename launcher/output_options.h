// The command line's options on where the ranks' output goes and who reads the input: their values as CLI11 fills them,
// their declaration, and their checks.
#pragma once

#include <string>

#include "launcher/options.h"

namespace CLI {
class App;
}

namespace launcher {

struct OutputValues {
  std::string log_folder{};
  std::string redirects = "0";
  std::string tee = "0";
  std::string console_ranks{};
  std::string output_filters{};
  std::string error_filters{};
  std::string output_folder{};
  std::string standard_input = "0";
};

// `values` must outlive the parsing.
void declare_output_options(CLI::App& app, OutputValues& values);

// Fills the fields of `options`; returns what is wrong with the values, "" when nothing is.
std::string read_output_options(const OutputValues& values, Options& options);

}  // namespace launcher
