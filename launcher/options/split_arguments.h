// Finds the end of ddprun's own arguments, where the program's begin.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

class OptionTable;

// mpirun's spelling of --nproc_per_node: two letters after one dash.
inline constexpr std::string_view kMpirunRanksOption = "-np";

struct SplitArguments {
  std::vector<std::string> own;  // each is one unambiguous word: `--name` or `--name=value`
  std::vector<std::string> program;
  bool is_separated = false;         // the program came after --
  bool counts_all_ranks = false;     // nproc_per_node was last given as -n or -np, which mpirun counts over all hosts
  std::string all_ranks{};           // the last value of -n or -np
  std::string ranks_of_node{};       // the last value of --nproc_per_node
  std::vector<std::string> remarks;  // messages about ignored options of other launchers
  std::vector<std::string>
      emptied;  // long names of options whose last value was empty, so that they count as not given
};

// The program starts at the first argument that is neither an option of `table` nor an option's value, or after `--`.
// CLI11 cannot find it alone, because it must not see the program's arguments. Throws UsageError for an unknown option,
// and for a value that is missing or not permitted.
SplitArguments split_arguments(const OptionTable& table, std::span<const std::string> given);

// A warning if -n and --nproc_per_node were both given and differ for this number of nodes.
std::optional<std::string> contradicting_ranks(const SplitArguments& split, int nodes);

}  // namespace launcher
