// Where ddprun's own arguments end and the program's begin.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace launcher {

class OptionTable;

// mpirun's spelling of --nproc_per_node, which has two letters after one dash.
inline constexpr std::string_view kMpirunsRanks = "-np";

struct SplitArguments {
  std::vector<std::string> own;  // each one unambiguous word: `--name` or `--name=value`
  std::vector<std::string> program;
  bool is_separated = false;         // by --
  bool counts_all_ranks = false;     // nproc_per_node was last given as -n or -np, which mpirun counts over all hosts
  std::string all_ranks{};           // the last value of -n or -np
  std::string ranks_of_node{};       // the last value of --nproc_per_node
  std::vector<std::string> remarks;  // what is said of options of other launchers that are ignored
  std::vector<std::string> emptied;  // long names of options that were last given an empty value: as if left out
};

// The program starts at the first argument that is neither an option of `table` nor an option's value, or after `--`.
// CLI11 alone cannot do this: it must not look at the program's arguments. Throws UsageError for an unknown option and
// for a value that is missing or too much.
SplitArguments split_arguments(const OptionTable& table, std::span<const std::string> given);

// A line where -n and --nproc_per_node were both given, and are not the same with so many nodes.
std::optional<std::string> contradicting_ranks(const SplitArguments& split, int nodes);

}  // namespace launcher
