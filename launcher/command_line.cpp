#include "launcher/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cstddef>

#include "launcher/command_line/help.h"
#include "launcher/command_line/split_arguments.h"
#include "launcher/command_line/usage_error.h"
#include "launcher/exit_status.h"
#include "launcher/output/prefix_template.h"
#include "launcher/output_options.h"
#include "launcher/placement_options.h"
#include "launcher/version.h"

namespace launcher {
namespace {

// torchrun's options that decide where nodes meet, and those that mean nothing here but appear on existing command
// lines.
struct TorchrunValues {
  std::string rdzv_backend;
  std::string rdzv_endpoint;
  std::string ignored;
  bool use_env = false;
};

// The values as CLI11 fills them; turned into Options at the end.
struct RawValues {
  int nnodes = 1;
  int node_rank = 0;
  std::string nproc_per_node;
  std::string hosts;
  std::string master_addr = "127.0.0.1";
  int master_port = -1;
  std::string rdzv_id;
  std::string role = "default";
  double join_timeout_seconds = 900;
  double grace_seconds = 30;
  double timeout_seconds = 0;
  double restart_backoff_seconds = 0;
  int max_restarts = 0;
  bool keep_daemons = false;
  std::string working_folder;
  std::vector<std::string> exported;
  TorchrunValues torchrun{};
  PlacementValues placement{};
  OutputValues output{};
  bool standalone = false;
  bool module = false;
  bool run_path = false;
  bool no_python = false;
  std::string local_rank_argument;
  bool expand_arguments = false;
  bool version = false;
  std::string event_file;
  bool dry_run = false;
  bool show_environment = false;
  bool check = false;
  std::string prefix;
  bool no_prefix = false;
};

void declare_options(CLI::App& app, RawValues& values) {
  const std::string job = "Which processes";
  app.add_option("-n,--nproc_per_node", values.nproc_per_node, "Processes on this node; also -np (1)")
      ->type_name("N|gpu|cpu|auto")
      ->group(job);
  app.add_option("-H,--hosts", values.hosts, "Room for ranks on this machine, as mpirun has it: localhost:N")
      ->type_name("HOST[:N]")
      ->group(job);
  app.add_option("--nnodes", values.nnodes, "Nodes of the job (1)")
      ->check(CLI::Range(1, 1 << 20))
      ->type_name("N")
      ->group(job);
  app.add_option("--node_rank", values.node_rank, "This node's number, from 0 (0)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group(job);
  app.add_flag("-m,--module", values.module, "PROGRAM is a Python module")->group(job);
  app.add_flag("--run_path", values.run_path, "PROGRAM is a Python script, folder or archive, whatever its name")
      ->group(job);
  app.add_flag("--no_python", values.no_python, "Execute a .py file directly instead of with python3 -u")->group(job);
  app.add_option("--pass_local_rank", values.local_rank_argument,
                 "Add --local_rank=N, or with =NAME --NAME=N, to the program's arguments")
      ->type_name("")
      ->expected(0, 1)
      ->group(job);
  app.add_flag("--expand_arguments", values.expand_arguments,
               "Replace ${rank}, ${local_rank}, ${world_size} and ${local_world_size} in the program's arguments")
      ->group(job);
  app.add_option("--role", values.role, "Value of ROLE_NAME (default)")->type_name("NAME")->group(job);
  app.add_option("-x,--export", values.exported, "Set NAME=VALUE for the ranks; may be repeated")
      ->type_name("NAME[=VALUE]")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(job);
  app.add_option("--wdir", values.working_folder, "Folder in which the ranks start")->type_name("FOLDER")->group(job);

  const std::string meeting = "Where they meet";
  app.add_flag("--standalone", values.standalone, "One node with a free port; the default when --nnodes is 1")
      ->group(meeting);
  app.add_option("--master_addr,--master_address", values.master_addr,
                 "Address of node 0; one node always uses 127.0.0.1")
      ->type_name("HOST")
      ->group(meeting);
  app.add_option("--master_port", values.master_port, "Port of the store on node 0 (one node: a free port; else 29500)")
      ->check(CLI::Range(0, 65535))
      ->type_name("PORT")
      ->group(meeting);
  app.add_option("--rdzv_id", values.rdzv_id, "Name of the job, TORCHELASTIC_RUN_ID (random; several nodes: none)")
      ->type_name("NAME")
      ->group(meeting);

  app.add_option("--join_timeout", values.join_timeout_seconds, "Seconds for all nodes to arrive (900)")
      ->type_name("SECONDS")
      ->group(meeting);

  const std::string output = "What they print";
  app.add_option("--prefix", values.prefix,
                 "Put =TEMPLATE in front of each line; fields {rank} {local_rank} {host} {stream} {time}; or =horovod "
                 "([{rank}]; with one rank: nothing)")
      ->type_name("")
      ->expected(0, 1)
      ->group(output);
  app.add_flag("--no_prefix", values.no_prefix, "Ranks write to ddprun's own output directly")->group(output);

  declare_output_options(app, values.output);
  app.add_option("--events", values.event_file, "Append one JSON line per start, exit, restart, failure and end")
      ->type_name("FILE")
      ->group(output);

  const std::string end = "How it ends";
  app.add_option("--grace", values.grace_seconds, "Seconds between asking a process to stop and killing it (30)")
      ->type_name("SECONDS")
      ->group(end);
  app.add_option("--timeout", values.timeout_seconds, "Stop the job after so many seconds, with status 124 (none)")
      ->type_name("SECONDS")
      ->group(end);
  app.add_option("--max_restarts", values.max_restarts, "Times that a failed job of one node is started again (0)")
      ->check(CLI::Range(0, 1 << 20))
      ->type_name("N")
      ->group(end);
  app.add_option("--restart_backoff", values.restart_backoff_seconds, "Seconds before each restart (0)")
      ->type_name("SECONDS")
      ->group(end);
  app.add_flag("--keep_daemons", values.keep_daemons, "Leave what the ranks left running alone")->group(end);

  const std::string torchrun = "Of torchrun";
  app.add_option("--rdzv_backend", values.torchrun.rdzv_backend, "static; with one node any")
      ->type_name("NAME")
      ->group(torchrun);
  app.add_option("--rdzv_endpoint", values.torchrun.rdzv_endpoint,
                 "Another way to give --master_addr and --master_port")
      ->type_name("HOST[:PORT]")
      ->group(torchrun);
  for (const char* name : {"--rdzv_conf", "--monitor_interval", "--start_method", "--local_addr"}) {
    app.add_option(name, values.torchrun.ignored, "Accepted; means nothing here")->type_name("X")->group(torchrun);
  }

  declare_placement_options(app, values.placement);

  const std::string information = "Information";
  app.add_flag("--dry_run", values.dry_run, "Print what would be started, and start nothing")->group(information);
  app.add_flag("--show_env", values.show_environment, "Print each rank's variables and GPUs, and start nothing")
      ->group(information);
  app.add_flag("--check", values.check,
               "Print what was built and what this machine offers, and whether a job could run")
      ->group(information);
  app.add_flag("--use_env", values.torchrun.use_env, "Accepted; ranks always get their numbers in the environment")
      ->group(torchrun);

  app.add_flag("--version", values.version, "Print the version and exit")->group(information);
}

// Each option with a value also reads PET_<NAME>, as torchrun's do; flags read PET_<NAME>=1.
void read_environment(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_lnames().empty() || option->get_group() == "Information" || option->get_name() == "--help")
      continue;
    std::string name = option->get_lnames().front();
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
    option->envname("PET_" + name);
  }
}

std::optional<std::chrono::milliseconds> milliseconds(double seconds) {
  if (!(seconds >= 0 && seconds <= 1e9)) return std::nullopt;  // also what is not a number
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

ExitRequest usage_error(const std::string& text) {
  return {to_int(ExitStatus::kLauncherError), "ddprun: " + text + "\n"};
}

Options::Mode mode_of(const RawValues& values) {
  if (values.check) return Options::Mode::kCheck;
  if (values.dry_run) return Options::Mode::kDryRun;
  return values.show_environment ? Options::Mode::kShowEnvironment : Options::Mode::kRun;
}

}  // namespace

std::variant<Options, ExitRequest> parse_command_line(std::span<const std::string> arguments) {
  CLI::App app(
      "Starts one process per rank of a distributed program and ends them together.\n"
      "Everything after PROGRAM belongs to the program and is passed on untouched.",
      "ddprun [OPTIONS] [--] PROGRAM [ARGUMENTS...]");
  RawValues values;
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  declare_options(app, values);
  read_environment(app);

  SplitArguments split;
  try {
    split = split_arguments(app, arguments);
  } catch (const UsageError& error) {
    return usage_error(error.what());
  }
  std::reverse(split.own.begin(), split.own.end());  // CLI11 takes a vector from its back
  try {
    app.parse(split.own);
  } catch (const CLI::CallForHelp&) {
    return ExitRequest{0, help_text(app)};
  } catch (const CLI::ParseError& error) {
    return usage_error(error.what());
  }
  if (values.version) return ExitRequest{0, std::string("ddprun ") + kVersion + "\n"};

  const auto grace = milliseconds(values.grace_seconds);
  if (!grace) return usage_error("--grace: expected seconds from 0 to 1000000000");
  const auto join_timeout = milliseconds(values.join_timeout_seconds);
  if (!join_timeout) return usage_error("--join_timeout: expected seconds from 0 to 1000000000");

  const auto timeout = milliseconds(values.timeout_seconds);
  if (!timeout) return usage_error("--timeout: expected seconds from 0 to 1000000000");
  const auto restart_backoff = milliseconds(values.restart_backoff_seconds);
  if (!restart_backoff) return usage_error("--restart_backoff: expected seconds from 0 to 1000000000");

  Options options{.mode = mode_of(values),
                  .nnodes = values.nnodes,
                  .node_rank = values.node_rank,
                  .hosts = values.hosts,
                  .standalone = values.standalone,
                  .master_addr = values.master_addr,
                  .rdzv_id = values.rdzv_id,
                  .join_timeout = *join_timeout,
                  .role = values.role,
                  .grace = *grace,
                  .max_restarts = values.max_restarts,
                  .restart_backoff = *restart_backoff,
                  .keep_daemons = values.keep_daemons,
                  .exported = values.exported,
                  .working_folder = values.working_folder,
                  .event_file = values.event_file,
                  .module = values.module,
                  .run_path = values.run_path,
                  .no_python = values.no_python,
                  .expand_arguments = values.expand_arguments,
                  .program = std::move(split.program)};
  if (app.count("--timeout") != 0) options.timeout = *timeout;
  if (options.nnodes > 1) {
    if (!values.torchrun.rdzv_backend.empty() && values.torchrun.rdzv_backend != "static") {
      return usage_error("--rdzv_backend " + values.torchrun.rdzv_backend +
                         ": several nodes meet by 'static' only; give each --node_rank and node 0's --master_addr");
    }
    if (options.max_restarts > 0) return usage_error("--max_restarts works on one node only");
    if (!values.torchrun.rdzv_endpoint.empty()) {
      const std::string& endpoint = values.torchrun.rdzv_endpoint;
      const std::size_t colon = endpoint.rfind(':');
      options.master_addr = endpoint.substr(0, colon);
      if (colon != std::string::npos && !CLI::detail::lexical_cast(endpoint.substr(colon + 1), values.master_port)) {
        return usage_error("--rdzv_endpoint: expected HOST:PORT, got '" + endpoint + "'");
      }
      if (values.master_port > 65535) return usage_error("--rdzv_endpoint: no such port in '" + endpoint + "'");
    }
  }
  for (const std::string& entry : options.exported) {
    if (entry.front() == '=') return usage_error("-x: expected NAME or NAME=VALUE, got '" + entry + "'");
  }
  if (values.master_port >= 0) options.master_port = static_cast<std::uint16_t>(values.master_port);
  if (values.nproc_per_node.empty()) {
    options.nproc_per_node = Options::kUnset;
  } else if (values.nproc_per_node == "cpu") {
    options.nproc_per_node = Options::kOnePerCpu;
  } else if (values.nproc_per_node == "gpu") {
    options.nproc_per_node = Options::kOnePerGpu;
  } else if (values.nproc_per_node == "auto") {
    options.nproc_per_node = Options::kAutomatic;
  } else {
    int count = 0;
    if (!CLI::detail::lexical_cast(values.nproc_per_node, count) || count < 1 || count > Options::kMaxLocalRanks) {
      return usage_error("--nproc_per_node: expected gpu, cpu, auto or a number from 1 to " +
                         std::to_string(Options::kMaxLocalRanks) + ", got '" + values.nproc_per_node + "'");
    }
    options.nproc_per_node = count;
  }
  if (const std::string problem = read_placement_options(app, values.placement, options); !problem.empty())
    return usage_error(problem);
  if (const std::string problem = read_output_options(values.output, options); !problem.empty())
    return usage_error(problem);
  options.no_prefix = values.no_prefix;
  if (app.count("--prefix") != 0) options.prefix = values.prefix.empty() ? PrefixTemplate::kDefault : values.prefix;
  if (app.count("--pass_local_rank") != 0) {
    std::string& name = values.local_rank_argument;
    name.erase(0, name.find_first_not_of('-'));  // some write the dashes too
    options.local_rank_argument = name.empty() ? "local_rank" : name;
  }
  if (options.prefix && options.no_prefix) return usage_error("--prefix and --no_prefix exclude each other");
  const bool needs_program = options.mode == Options::Mode::kRun || options.mode == Options::Mode::kDryRun;
  if (options.program.empty() && needs_program)
    return usage_error("no program given: ddprun [OPTIONS] PROGRAM [ARGUMENTS...]");
  if (!options.program.empty() && options.program.front().empty()) return usage_error("the program's name is empty");
  if (options.module + options.run_path + options.no_python > 1) {
    return usage_error("only one of -m, --run_path and --no_python can be given");
  }
  if (!options.hosts.empty() && options.nnodes > 1) return usage_error("-H is for one node; with --nnodes use -n");
  if (options.node_rank >= options.nnodes) {
    return usage_error("--node_rank " + std::to_string(options.node_rank) + " is not below --nnodes " +
                       std::to_string(options.nnodes));
  }
  if (options.nnodes > 1 && options.node_rank > 0 && app.count("--master_addr") == 0 &&
      values.torchrun.rdzv_endpoint.empty()) {
    return usage_error("--nnodes " + std::to_string(options.nnodes) + ": --master_addr must name node 0's host");
  }
  if (options.standalone && options.nnodes > 1)
    return usage_error("--standalone is for one node, but --nnodes is " + std::to_string(options.nnodes));
  return options;
}

}  // namespace launcher
