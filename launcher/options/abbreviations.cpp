#include "launcher/options/abbreviations.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <vector>

#include "launcher/options/usage_error.h"

namespace launcher {
namespace {

// Those of all supported versions of torchrun and torch.distributed.launch; a test compares them with the parsers.
constexpr std::array<std::string_view, 34> kNames = {"nnodes",
                                                     "nproc_per_node",
                                                     "rdzv_backend",
                                                     "rdzv_endpoint",
                                                     "rdzv_id",
                                                     "rdzv_conf",
                                                     "standalone",
                                                     "max_restarts",
                                                     "monitor_interval",
                                                     "start_method",
                                                     "event_log_handler",
                                                     "role",
                                                     "module",
                                                     "no_python",
                                                     "run_path",
                                                     "log_dir",
                                                     "redirects",
                                                     "tee",
                                                     "log_line_prefix_template",
                                                     "local_ranks_filter",
                                                     "duplicate_stdout_filters",
                                                     "duplicate_stderr_filters",
                                                     "node_rank",
                                                     "master_addr",
                                                     "master_port",
                                                     "local_addr",
                                                     "logs_specs",
                                                     "numa_binding",
                                                     "signals_to_handle",
                                                     "shutdown_timeout",
                                                     "virtual_local_rank",
                                                     "print_completion",
                                                     "use_env",
                                                     "help"};

std::string with_dashes(std::string_view name) {
  std::string text = "--" + std::string(name);
  std::replace(text.begin(), text.end(), '_', '-');
  return text;
}

}  // namespace

bool is_torchruns_name(std::string name) {
  std::replace(name.begin(), name.end(), '-', '_');
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

std::optional<std::string> complete_torchruns_name(std::string_view beginning) {
  if (beginning.empty()) return std::nullopt;
  // An argument of the scripts that torch.distributed.launch starts, and no short form of --local_ranks_filter.
  if (beginning == "local_rank") {
    throw UsageError(
        "--local_rank is no option of a launcher: each rank finds its number in the variable LOCAL_RANK; for a program "
        "that reads it from its arguments write --pass_local_rank");
  }
  std::vector<std::string_view> found;
  std::copy_if(kNames.begin(), kNames.end(), std::back_inserter(found),
               [beginning](std::string_view name) { return name.starts_with(beginning); });
  if (found.empty()) return std::nullopt;
  if (found.size() == 1) return std::string(found.front());
  std::string candidates;
  for (const std::string_view name : found) candidates.append(candidates.empty() ? "" : ", ").append(with_dashes(name));
  throw UsageError("ambiguous option: " + with_dashes(beginning) + " could match " + candidates);
}

}  // namespace launcher
