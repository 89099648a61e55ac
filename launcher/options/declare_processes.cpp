#include <algorithm>
#include <string>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"
#include "launcher/plan/local_ranks.h"

namespace launcher {
namespace {

int parse_ranks(const std::string& text) {
  if (text == "cpu") return Options::kOnePerCpu;
  if (text == "gpu") return Options::kOnePerGpu;
  if (text == "auto") return Options::kAutomatic;
  if (text == "xpu") {
    throw UsageError("--nproc_per_node xpu: ddprun does not count Intel GPUs; give their number instead");
  }
  return parse_number("--nproc_per_node", text, 1, Options::kMaxLocalRanks, ", or gpu, cpu or auto");
}

std::string shown_ranks(int ranks) {
  switch (ranks) {
    case Options::kUnset:
      return std::to_string(LocalRanks{}.count);
    case Options::kOnePerCpu:
      return "cpu";
    case Options::kOnePerGpu:
      return "gpu";
    case Options::kAutomatic:
      return "auto";
    default:
      return std::to_string(ranks);
  }
}

// N, or torchrun's MIN:MAX.
void parse_nodes(const std::string& text, Options& options) {
  if (std::count(text.begin(), text.end(), ':') > 1 || text.starts_with(':') || text.ends_with(':'))
    throw UsageError("--nnodes: expected N or MIN:MAX, got '" + text + "'");
  const std::size_t colon = text.find(':');
  const int fewest = parse_number("--nnodes", text.substr(0, colon), 1, NumberRange::kMax);
  const int most =
      colon == std::string::npos ? fewest : parse_number("--nnodes", text.substr(colon + 1), 1, NumberRange::kMax);
  if (fewest > most) {
    throw UsageError("--nnodes " + text + ": expected MIN:MAX, the fewest nodes first");
  }
  options.nnodes = most;
  options.elastic.min_nodes = fewest == most ? 0 : fewest;
}

std::string nodes_text(const Options& options) {
  const std::string most = std::to_string(options.nnodes);
  return options.elastic.is_on() ? std::to_string(options.elastic.min_nodes) + ":" + most : most;
}

}  // namespace

void declare_processes(OptionTable& table, Options& options) {
  table.group("Processes");
  table.parsed(
      torchrun_option(
          {"-n,--nproc_per_node N|gpu|cpu|auto",
           "Ranks on this node: a number, one per visible GPU, one per usable CPU, or `auto`: GPUs, else CPUs. "
           "Also `-np`. With `-H`: `-n` counts those of all hosts, `--nproc_per_node` those of each",
           "Visible GPUs are those that CUDA_VISIBLE_DEVICES shows."}),
      shown_ranks(options.nproc_per_node),
      [&](const std::string& text) { options.nproc_per_node = parse_ranks(text); });
  table.parsed(
      torchrun_option({"--nnodes N|MIN:MAX", "Nodes of the job; with MIN:MAX their number may change during the job",
                       "[How](many-nodes.md#nodes-that-come-and-go)."}),
      nodes_text(options), [&](const std::string& text) { parse_nodes(text, options); });
  table.number(torchrun_option({"--node_rank", "This node's number, from 0", "Node 0 hosts the store."}),
               options.node_rank);
  table.flag(torchrun_option({"-m,--module", "PROGRAM is a Python module"}), options.module);
  table.flag(torchrun_option({"--run_path", "PROGRAM is a Python script, folder or archive, whatever its name"}),
             options.run_path);
  table.flag(torchrun_option({"--no_python", "Execute a .py file directly instead of with `python3 -u`"}),
             options.no_python);
  table.optional_text(
      {"--pass_local_rank NAME", "Add `--local_rank=N` (with NAME: `--NAME=N`) before the program's arguments",
       "For programs that read it there."},
      options.local_rank_argument, "local_rank");
  table.flag(
      {"--expand_arguments",
       "Replace `${rank}`, `${local_rank}`, `${world_size}` and `${local_world_size}` in the program's arguments"},
      options.expand_arguments);
  table.text(torchrun_option({"--role NAME", "Value of the variable ROLE_NAME"}), options.role);
  table.list({"-x,--export NAME[=VALUE]",
              "Set a variable for the ranks, or pass it on from ddprun's environment; may be repeated"},
             options.exported);
  table.text({"--wdir FOLDER",
              "Folder in which the ranks start",
              "A relative path of PROGRAM starts there, as after `cd FOLDER`.",
              {.unset = "ddprun's"}},
             options.working_folder);
}

}  // namespace launcher
