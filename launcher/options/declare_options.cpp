#include "launcher/options/declare_options.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "launcher/local/output/prefix_template.h"
#include "launcher/options/generated_texts.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"
#include "launcher/os/system/signals.h"

namespace launcher {
namespace {

constexpr int kMostNodes = 1 << 20;

int parse_ranks(const std::string& text) {
  if (text == "cpu") return Options::kOnePerCpu;
  if (text == "gpu") return Options::kOnePerGpu;
  if (text == "auto") return Options::kAutomatic;
  if (text == "xpu") {
    throw UsageError("--nproc_per_node xpu: ddprun does not count Intel GPUs; give their number instead");
  }
  return parse_number("--nproc_per_node", text, 1, Options::kMaxLocalRanks, ", or gpu, cpu or auto");
}

// N, or torchrun's MIN:MAX.
void parse_nodes(const std::string& text, Options& options) {
  const std::size_t colon = text.find(':');
  if (std::count(text.begin(), text.end(), ':') > 1)
    throw UsageError("--nnodes: expected N or MIN:MAX, got '" + text + "'");
  const int fewest = parse_number("--nnodes", text.substr(0, colon), 1, kMostNodes);
  const int most =
      colon == std::string::npos ? fewest : parse_number("--nnodes", text.substr(colon + 1), 1, kMostNodes);
  if (fewest > most) {
    throw UsageError("--nnodes " + text + ": expected MIN:MAX, the fewest nodes first");
  }
  options.nnodes = most;
  options.elastic.min_nodes = fewest == most ? 0 : fewest;
}

bool is_gpu_name(const std::string& name) {
  if (name.starts_with("GPU-") || name.starts_with("MIG-")) return true;
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

std::vector<std::string> parse_gpus(const std::string& text) {
  std::vector<std::string> gpus = split_at_commas(text);
  for (const std::string& gpu : gpus) {
    if (!is_gpu_name(gpu)) {
      throw UsageError("--gpus: expected numbers, such as 0,1, or UUIDs (GPU-..., MIG-...), got " + quoted_value(gpu) +
                       "; without --gpus all are used");
    }
    if (std::count(gpus.begin(), gpus.end(), gpu) > 1) throw UsageError("--gpus names " + gpu + " twice");
  }
  return gpus;
}

std::vector<int> parse_stop_signals(const std::string& text) {
  // What ddprun needs itself, and what no program can handle.
  constexpr std::array kRefused = {SIGKILL, SIGSTOP, SIGCHLD, SIGTSTP, SIGCONT, SIGPIPE, SIGTTIN, SIGTTOU,
                                   SIGSEGV, SIGBUS,  SIGFPE,  SIGILL,  SIGABRT, SIGTRAP, SIGSYS};
  std::vector<int> signals;
  for (const std::string& name : split_at_commas(text)) {
    const auto number = signal_number(name);
    if (!number) {
      throw UsageError("--signals_to_handle: there is no signal '" + name + "'; expected names such as SIGTERM,SIGINT");
    }
    if (std::find(kRefused.begin(), kRefused.end(), *number) != kRefused.end()) {
      throw UsageError("--signals_to_handle: " + name +
                       " cannot be used here; expected signals that ask a program to stop, such as SIGTERM,SIGINT");
    }
    signals.push_back(*number);
  }
  return signals;
}

StreamSelection parse_streams(const std::string& option, const std::string& text) {
  const auto streams = StreamSelection::parse(text);
  const bool is_time = option == "--tee" && text.find_first_not_of("0123456789:") == std::string::npos;  // srun's -t
  if (!streams)
    throw UsageError(option +
                     ": expected 0 (nothing), 1 (stdout), 2 (stderr) or 3 (both), or one of these for each rank, such "
                     "as 0:3,1:2; got '" +
                     text + "'" + (is_time ? " (a limit of time is --timeout SECONDS)" : ""));
  return *streams;
}

std::vector<int> parse_shown_ranks(const std::string& text) {
  const auto ranks = parse_rank_list(text);
  if (!ranks)
    throw UsageError("--local_ranks_filter: expected numbers and commas, such as 0,3, got " + quoted_value(text));
  return *ranks;
}

StandardInput parse_standard_input(const std::string& text) {
  if (text == "all") return {StandardInput::To::kAll};
  if (text == "none") return {StandardInput::To::kNone};
  return {StandardInput::To::kRank,
          parse_number("--stdin", text, 0, Options::kMaxLocalRanks, " (a rank), all or none")};
}

void declare_processes(OptionTable& table, Options& options) {
  table.group("Which processes");
  table.parsed(
      "-n,--nproc_per_node", [&](const std::string& text) { options.nproc_per_node = parse_ranks(text); },
      "N|gpu|cpu|auto", "1",
      "Ranks on this node: a number, one per visible GPU, one per usable CPU, or auto: GPUs, else CPUs. Also -np. With "
      "-H: -n counts those of all hosts, --nproc_per_node those of each");
  table.parsed(
      "--nnodes", [&](const std::string& text) { parse_nodes(text, options); }, "N|MIN:MAX", "1",
      "Nodes of the job; with MIN:MAX they may come and go");
  table.number("--node_rank", options.node_rank, 0, kMostNodes, "0", "This node's number, from 0");
  table.flag("-m,--module", options.module, "PROGRAM is a Python module");
  table.flag("--run_path", options.run_path, "PROGRAM is a Python script, folder or archive, whatever its name");
  table.flag("--no_python", options.no_python, "Execute a .py file directly instead of with python3 -u");
  table.optional_text("--pass_local_rank", options.local_rank_argument, "local_rank", "NAME", "none",
                      "Add --local_rank=N (with NAME: --NAME=N) behind the program's arguments");
  table.flag("--expand_arguments", options.expand_arguments,
             "Replace ${rank}, ${local_rank}, ${world_size} and ${local_world_size} in the program's arguments");
  table.text("--role", options.role, "NAME", "default", "Value of ROLE_NAME");
  table.list("-x,--export", options.exported, "NAME[=VALUE]",
             "Set a variable for the ranks, or keep it as it is in ddprun's environment; may be repeated");
  table.text("--wdir", options.working_folder, "FOLDER", "ddprun's", "Folder in which the ranks start");
}

void declare_resources(OptionTable& table, Options& options) {
  using Binding = Options::Binding;
  table.group("On which resources");
  table.parsed(
      "--gpus", [&](const std::string& text) { options.gpus = parse_gpus(text); }, "LIST", "all",
      "GPUs of this job: numbers or UUIDs; one rank for each unless -n says else");
  table.flag("--virtual_local_rank", options.virtual_local_rank, "Each rank sees one GPU only, and LOCAL_RANK=0");
  table.choice("--bind_to",
               {{"none", [&] { options.binding = Binding::kNone; }},
                {"core", [&] { options.binding = Binding::kCore; }},
                {"numa", [&] { options.binding = Binding::kNuma; }}},
               "Give each rank its own share of the CPUs, or of its GPU's NUMA node");
  table.choice("--numa_binding",
               {{"off", [&] { options.binding = Binding::kNone; }},
                {"node", [&] { options.binding = Binding::kNuma; }},
                {"socket", [&] { options.binding = Binding::kNuma; }},
                {"exclusive", [&] { options.binding = Binding::kCore; }},
                {"core-complex", [&] { options.binding = Binding::kCore; }}},
               "Of torchrun: node and socket are --bind_to numa, the others --bind_to core");
}

void declare_meeting(OptionTable& table, Options& options) {
  table.group("Where they meet");
  table.flag("--standalone", options.standalone, "One node with a free port: what one node has anyway");
  table.text("--master_addr,--master_address", options.master_addr, "HOST", "127.0.0.1",
             "Address of node 0; one node always uses 127.0.0.1");
  table.parsed(
      "--master_port",
      [&](const std::string& text) {
        options.master_port = static_cast<std::uint16_t>(parse_number("--master_port", text, 0, 65535));
      },
      "PORT", "one node: a free port; several: 29500", "Port of the store on node 0");
  table.choice("--store",
               {{"agent", [&] { options.store = Options::Store::kLauncher; }},
                {"rank0", [&] { options.store = Options::Store::kRank0; }}},
               "Who hosts the store: ddprun, or rank 0 as in plain torch.distributed");
  using Proxy = Options::StoreProxy;
  table.choice("--store_proxy",
               {{"library", [&] { options.store_proxy = Proxy::kLibrary; }},
                {"all", [&] { options.store_proxy = Proxy::kAll; }},
                {"off", [&] { options.store_proxy = Proxy::kOff; }}},
               "Which ranks of the other nodes reach the store through their ddprun: programs of the C++ library, or "
               "all, whose MASTER_ADDR is 127.0.0.1 then");
  table.text("--iface", options.interface, "NAME|CIDR", "the one that reaches node 0",
             "Network interface of gloo and NCCL: a name, an address, or a network such as 10.0.0.0/8");
  table.text("--rdzv_id", options.rdzv_id, "NAME", "one node: random; several: none",
             "Name of the job, TORCHELASTIC_RUN_ID; equal on all nodes");
  table.text("--rdzv_secret_file", options.secret_file, "FILE", "none",
             "Several nodes: only launchers with the same secret may join");
  table.text("--local_addr", options.local_addr, "HOST", "its host name", "What this node is called, and found by");
  table.seconds("--join_timeout", options.join_timeout, "900", "For all nodes to arrive");
  table.seconds(
      "--node_timeout", options.node_timeout, "10",
      "Several nodes: a launcher that is not heard of for so long is lost; shorter interruptions of the network "
      "are survived");
  table.choice("--node_order",
               {{"arrival", [&] { options.order_by_host = false; }}, {"host", [&] { options.order_by_host = true; }}},
               "How --rdzv_backend c10d numbers the nodes: as they arrive, or by their host names");
  table.seconds("--start_timeout", options.start_timeout,
                "For every rank to reach the store; the missing ones are named");
}

void declare_output(OptionTable& table, Options& options) {
  table.group("What they print");
  table.optional_text("--prefix", options.prefix, std::string(PrefixTemplate::kDefault), "TEMPLATE",
                      "'[{rank}] '; with one rank: nothing",
                      "Text in front of each line, with {rank}, {local_rank}, {host}, {stream} and {time}; horovod is "
                      "[1,{rank}]<{stream}>:");
  table.flag("--no_prefix", options.no_prefix, "Ranks write to ddprun's own output directly");
  table.text("--log_dir", options.log_folder, "DIR", "none",
             "Folder for log files: DIR/<run>/attempt_<n>/<local rank>/{stdout.log,stderr.log,error.json}");
  table.parsed(
      "-r,--redirects", [&](const std::string& text) { options.redirects = parse_streams("--redirects", text); },
      "STREAMS", "0",
      "Streams that go to log files only: 0 none, 1 stdout, 2 stderr, 3 both; or by local rank: 0:3,11:1");
  table.parsed(
      "-t,--tee", [&](const std::string& text) { options.tee = parse_streams("--tee", text); }, "STREAMS", "0",
      "Streams that go to log files and to the console, named like those of -r");
  table.parsed(
      "--local_ranks_filter", [&](const std::string& text) { options.console_ranks = parse_shown_ranks(text); }, "LIST",
      "all", "Local ranks whose output is shown, as in 0,3");
  table.parsed(
      "--duplicate_stdout_filters", [&](const std::string& text) { options.output_filters = parse_text_list(text); },
      "TEXT,...", "none", "Copy lines with one of these texts to filtered_stdout.log among the log files");
  table.parsed(
      "--duplicate_stderr_filters", [&](const std::string& text) { options.error_filters = parse_text_list(text); },
      "TEXT,...", "none", "The same for standard error");
  table.text("--output_filename", options.output_folder, "DIR", "none",
             "Copy the output of each rank to DIR/rank.<rank>/{stdout,stderr}");
  table.parsed(
      "--stdin", [&](const std::string& text) { options.standard_input = parse_standard_input(text); }, "RANK|all|none",
      "0", "Who reads ddprun's standard input");
  table.text("--events", options.event_file, "FILE", "none",
             "Append one JSON line per start, exit, restart, failure and end");
}

void declare_ending(OptionTable& table, Options& options) {
  table.group("How it ends");
  table.seconds("--grace", options.grace, "30", "Between asking a process to stop and killing it");
  table.seconds("--timeout", options.timeout, "Stop the job after this time, with status 124");
  table.number("--max_restarts", options.max_restarts, 0, 1 << 20, "0", "Times that a failed job is started again");
  table.seconds("--restart_backoff", options.restart_backoff, "0", "Before each restart");
  table.flag("--keep_daemons", options.keep_daemons, "Leave what the ranks left running alone");
  table.choice("--exit_code",
               {{"worker", [&] { options.torchrun_exit_code = false; }},
                {"torchrun", [&] { options.torchrun_exit_code = true; }}},
               "Status of a failed job: the first failing rank's, or always 1");
  table.parsed(
      "--signals_to_handle", [&](const std::string& text) { options.stop_signals = parse_stop_signals(text); }, "LIST",
      "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "Signals to ddprun that stop the ranks");
  table.parsed(
      "--debug", [&](const std::string& text) { options.debug_rank = parse_number("--debug RANK", text, 0, 1 << 30); },
      "RANK", "none", "Run this rank under gdb in this terminal");
}

void declare_information(OptionTable& table, Options& options) {
  using Mode = Options::Mode;
  table.group("Information");
  const auto mode = [&options](Options::Mode value) { return [&options, value] { options.mode = value; }; };
  table.command("--dry_run", mode(Mode::kDryRun), "Print what would be started, and start nothing");
  table.command("--show_env", mode(Mode::kShowEnvironment), "Print each rank's variables and GPUs, and start nothing");
  table.command("--check", mode(Mode::kCheck),
                "Print what was built and what this machine offers; status 0 when a job could run");
  const auto explain = [&options](const std::string& text) {
    options.mode = Mode::kExplain;
    options.explained = text;
  };
  table.command("--explain", explain, "TEXT", "Print what a message of ddprun or of the library means, and what to do");
  std::vector<OptionTable::Choice> texts;
  for (const GeneratedText& text : generated_texts()) {
    texts.emplace_back(text.kind, [&options, kind = text.kind] {
      options.mode = Mode::kGenerate;
      options.generated = kind;
    });
  }
  table.command("--generate", std::move(texts),
                "Print the manual page, the completion for a shell, or what becomes of other launchers' options");
  table.command("--cmake_prefix_path", mode(Mode::kCmakePrefixPath),
                "Print where CMake finds this ddprun and the PyTorch beside it, for -DCMAKE_PREFIX_PATH");
  table.command("--version", mode(Mode::kVersion), "Print the version");
  table.command("-h,--help", mode(Mode::kHelp), "Print the options");
}

}  // namespace

void declare_options(CLI::App& app, Options& options) {
  OptionTable table(app);
  declare_processes(table, options);
  declare_hosts(table, options);
  declare_resources(table, options);
  declare_meeting(table, options);
  declare_elastic(table, options.elastic);
  declare_output(table, options);
  declare_ending(table, options);
  declare_watching(table, options);
  declare_torchruns(table, options);
  declare_information(table, options);
}

}  // namespace launcher
