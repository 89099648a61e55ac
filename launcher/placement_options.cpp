#include "launcher/placement_options.h"

#include <signal.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/signals.h"

namespace launcher {
namespace {

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

bool is_gpu_name(const std::string& name) {
  if (name.starts_with("GPU-") || name.starts_with("MIG-")) return true;
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::string read_gpus(const std::string& text, Options& options) {
  options.gpus = split_at_commas(text);
  for (const std::string& gpu : options.gpus) {
    if (!is_gpu_name(gpu)) return "--gpus: expected numbers or UUIDs (GPU-..., MIG-...), got '" + gpu + "'";
    if (std::count(options.gpus.begin(), options.gpus.end(), gpu) > 1) return "--gpus names " + gpu + " twice";
  }
  return {};
}

std::string read_signals(const std::string& text, Options& options) {
  // What ddprun needs itself, and what no program can handle.
  constexpr std::array kRefused = {SIGKILL, SIGSTOP, SIGCHLD, SIGTSTP, SIGCONT, SIGPIPE, SIGTTIN, SIGTTOU,
                                   SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS};
  for (const std::string& name : split_at_commas(text)) {
    const auto number = signal_number(name);
    if (!number) return "--signals_to_handle: there is no signal '" + name + "'; expected names such as SIGTERM,SIGINT";
    if (std::find(kRefused.begin(), kRefused.end(), *number) != kRefused.end())
      return "--signals_to_handle: " + name + " cannot be a signal that ends the job";
    options.stop_signals.push_back(*number);
  }
  return {};
}

}  // namespace

void declare_placement_options(CLI::App& app, PlacementValues& values) {
  const std::string placement = "On which resources";
  app.add_option("--gpus", values.gpus,
                 "GPUs of this job: numbers or UUIDs; one rank for each unless -n says else (all)")
      ->type_name("LIST")
      ->group(placement);
  app.add_flag("--virtual_local_rank", values.virtual_local_rank, "Each rank sees one GPU only, and LOCAL_RANK=0")
      ->group(placement);
  app.add_option("--bind_to", values.binding,
                 "Give each rank its own share of the CPUs, or of its GPU's NUMA node (none)")
      ->check(CLI::IsMember({"none", "core", "numa"}))
      ->type_name("none|core|numa")
      ->group(placement);

  const std::string meeting = "Where they meet";
  app.add_option("--store", values.store,
                 "Who hosts the store: ddprun, or rank 0 as in plain torch.distributed (agent)")
      ->check(CLI::IsMember({"agent", "rank0"}))
      ->type_name("agent|rank0")
      ->group(meeting);
  app.add_option("--start_timeout", values.start_timeout_seconds,
                 "Seconds for every rank to reach the store; the missing ones are named (none)")
      ->type_name("SECONDS")
      ->group(meeting);

  const std::string end = "How it ends";
  app.add_option("--exit_code", values.exit_code,
                 "Status of a failed job: the first failing rank's, or always 1 (worker)")
      ->check(CLI::IsMember({"worker", "torchrun"}))
      ->type_name("worker|torchrun")
      ->group(end);
  app.add_option("--signals_to_handle", values.signals,
                 "Signals to ddprun that stop the ranks (SIGTERM,SIGINT,SIGHUP,SIGQUIT)")
      ->type_name("LIST")
      ->group(end);
  app.add_option("--debug", values.debug_rank, "Run this rank under gdb in this terminal")
      ->check(CLI::Range(0, 1 << 30))
      ->type_name("RANK")
      ->group(end);
}

std::string read_placement_options(const CLI::App& app, const PlacementValues& values, Options& options) {
  if (!values.gpus.empty()) {
    if (std::string problem = read_gpus(values.gpus, options); !problem.empty()) return problem;
    if (app.count("--nproc_per_node") == 0) options.nproc_per_node = static_cast<int>(options.gpus.size());
  }
  if (!values.signals.empty()) {
    if (std::string problem = read_signals(values.signals, options); !problem.empty()) return problem;
  }
  options.virtual_local_rank = values.virtual_local_rank;
  if (values.binding == "core") options.binding = Options::Binding::kCore;
  if (values.binding == "numa") options.binding = Options::Binding::kNuma;
  if (values.store == "rank0") options.store = Options::Store::kRank0;
  options.torchrun_exit_code = values.exit_code == "torchrun";
  if (app.count("--debug") != 0) options.debug_rank = values.debug_rank;
  if (app.count("--start_timeout") != 0) {
    if (!(values.start_timeout_seconds > 0 && values.start_timeout_seconds <= 1e9))
      return "--start_timeout: expected seconds above 0 and up to 1000000000";
    options.start_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(values.start_timeout_seconds * 1000));
    if (options.store == Options::Store::kRank0)
      return "--start_timeout needs ddprun's own store: not with --store rank0";
  }
  if (options.nnodes > 1 && options.store == Options::Store::kRank0)
    return "--store rank0 works on one node only: the nodes meet at node 0's store";
  return {};
}

}  // namespace launcher
