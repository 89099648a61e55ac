#include "launcher/options/check_options.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

#include "launcher/nodes/rendezvous_kinds.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"
#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

// The most characters of a name that the launchers send to each other.
constexpr std::size_t kMaxNameLength = 1024;

void check_export(const std::string& entry) {
  const std::string name = entry.substr(0, entry.find('='));
  if (!name.empty() && name.find_first_of(",: \t") == std::string::npos) return;
  const bool is_list = name.find(',') != std::string::npos;
  const bool is_sruns = name.starts_with("ALL,") || name.starts_with("all,");
  throw UsageError("-x: expected NAME or NAME=VALUE, without blanks, got '" + printable(entry) +
                   (is_sruns  ? "'; all variables are passed on anyway; to set some too, write -x A=1 -x B=2"
                    : is_list ? "'; for several variables repeat the option: -x A -x B=1"
                              : "'"));
}

// Detects mpirun's "-n 2 ./a : -n 3 ./b". A colon as an argument of the program must come after --.
void check_single_program(const std::vector<std::string>& program) {
  for (std::size_t i = 1; i + 2 < program.size(); ++i) {
    if (program[i] != ":" || !program[i + 1].starts_with('-')) continue;
    throw UsageError(
        "':' separates several programs for mpirun, but ddprun starts only one. Let the shell choose by the variable "
        "RANK, for example: ddprun -n 5 sh -c 'if [ $RANK -lt 2 ]; then exec ./a; else exec ./b; fi'. If ':' is an "
        "argument of the program, write -- before the program");
  }
}

void check_program(Options& options) {
  if (!options.program.empty() && options.program.front().empty())
    throw UsageError("the program's name is empty (is a variable of the shell not set?)");
  if (!options.is_separated) check_single_program(options.program);
  if (options.module + options.run_path + options.no_python > 1) {
    throw UsageError("only one of -m, --run_path and --no_python can be given");
  }
  for (const std::string& entry : options.exported) {
    check_export(entry);
  }
  if (options.local_rank_argument) {
    std::string& name = *options.local_rank_argument;
    name.erase(0, name.find_first_not_of('-'));  // some users write the dashes, too
    if (name.empty()) throw UsageError("--pass_local_rank: expected a name, got only dashes");
  }
}

// DNS allows 253 bytes.
void check_host_name(const char* option, const std::string& name) {
  constexpr std::size_t kMaxHostLength = 255;
  if (name.size() > kMaxHostLength) {
    throw UsageError(std::string(option) + ": expected a host name of at most " + std::to_string(kMaxHostLength) +
                     " bytes, got " + std::to_string(name.size()));
  }
  if (std::any_of(name.begin(), name.end(), [](unsigned char letter) { return letter <= ' ' || letter == 0x7f; }))
    throw UsageError(std::string(option) + ": expected a host's name or address, without blanks, got '" +
                     printable(name) + "'");
  const std::string expected = std::string(option) + ": expected a host's name or address";
  if (const std::size_t scheme = name.find("://"); scheme != std::string::npos)
    throw UsageError(expected + ", got '" + printable(name) + "'; leave " + printable(name.substr(0, scheme)) +
                     ":// out");
  if (name.find(',') != std::string::npos)
    throw UsageError(expected + ", got '" + printable(name) + "'; name only one host");
  if (name.ends_with(':'))  // "fd00:" of "fd00::1"
    throw UsageError(expected + ", got '" + printable(name) +
                     "'; an IPv6 address before a port is in brackets: " + "[fd00::1]:29500");
  if (std::count(name.begin(), name.end(), ':') == 1)  // an IPv6 address has two or more
    throw UsageError(expected + ", without a port, got '" + printable(name) + "'; the port is --master_port");
}

// An IPv6 address may be in brackets, as before a port.
void remove_brackets(std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
}

// --rdzv_endpoint is torchrun's form of --master_addr and --master_port. An IPv6 address without a port ends with a
// bracket.
void read_endpoint(Options& options) {
  if (options.rdzv_endpoint.empty()) return;
  const std::size_t colon = options.rdzv_endpoint.ends_with(']') ? std::string::npos : options.rdzv_endpoint.rfind(':');
  options.master_addr = options.rdzv_endpoint.substr(0, colon);
  if (colon == std::string::npos) return;
  options.master_port = static_cast<std::uint16_t>(
      parse_number("--rdzv_endpoint HOST:PORT", options.rdzv_endpoint.substr(colon + 1), 0, 65535));
}

void check_hosts(Options& options) {
  const bool has_hosts = !options.hosts.empty() || !options.host_file.empty();
  if (!options.hosts.empty() && !options.host_file.empty()) throw UsageError("give either -H or --hostfile, not both");
  if (!options.include.empty() && !options.exclude.empty())
    throw UsageError("give either --include or --exclude, not both");
  if (!has_hosts && !(options.include.empty() && options.exclude.empty())) {
    throw UsageError(
        "--include and --exclude choose among the hosts of --hostfile or -H: give one of these; on this machine alone "
        "--gpus 0,1 chooses GPUs");
  }
  if (has_hosts && options.nnodes > 1) {
    throw UsageError("the hosts of -H and --hostfile are the nodes: leave --nnodes out");
  }
  if (has_hosts && options.node_rank > 0) {
    throw UsageError("ddprun numbers the hosts of -H and --hostfile itself: leave --node_rank out");
  }
  if (std::error_code error; std::filesystem::is_regular_file(options.hosts, error)) {
    options.remarks.push_back("-H " + options.hosts + ": there is a file of this name; a file with hosts is given by " +
                              "--hostfile " + options.hosts);
  }
  if (options.ssh.command.find_first_not_of(" \t") == std::string::npos) throw UsageError("--ssh_command is empty");
}

// A job on one node needs no backend of torchrun's. But a misspelt name is refused at once, not only when the job gets
// a second node.
void check_backend(const std::string& name) {
  constexpr std::array<std::string_view, 5> kNames = {"", "static", "c10d", "etcd", "etcd-v2"};
  if (std::find(kNames.begin(), kNames.end(), name) != kNames.end()) return;
  throw UsageError("--rdzv_backend " + name + ": expected static, c10d, etcd or etcd-v2");
}

void check_rendezvous(Options& options) {
  const std::string nodes = "--nnodes " + std::to_string(options.nnodes);
  if (options.rdzv_id.size() > kMaxNameLength) {
    throw UsageError("--rdzv_id: expected at most " + std::to_string(kMaxNameLength) + " bytes, got " +
                     std::to_string(options.rdzv_id.size()));
  }
  if (options.nnodes > 1 && options.standalone)
    throw UsageError("--standalone is for one node, not for " + nodes + ": leave one of them out");
  check_backend(options.rdzv_backend);
  const RendezvousKind* kind = find_rendezvous(options);
  if (kind == nullptr) {
    throw UsageError("--rdzv_backend " + options.rdzv_backend + ": for several nodes expected " + rendezvous_names());
  }
  if (options.nnodes > 1) read_endpoint(options);
  remove_brackets(options.master_addr);
  check_host_name("--local_addr", options.local_addr);
  check_host_name(options.rdzv_endpoint.empty() ? "--master_addr" : "--rdzv_endpoint", options.master_addr);
  if (const std::string option_conflict = kind->option_conflict(options); !option_conflict.empty())
    throw UsageError(option_conflict);
}

void check_prefixes(const Options& options) {
  if (options.prefix && options.no_prefix) throw UsageError("give either --prefix or --no_prefix, not both");
  if (!options.line_prefix_template.empty() && (options.prefix || options.no_prefix)) {
    throw UsageError("give only one of --log_line_prefix_template, --prefix and --no_prefix");
  }
}

}  // namespace

void check_options(Options& options) {
  if (options.on_hang == Options::OnHang::kRestart && options.max_restarts == 0 && !options.elastic.is_on()) {
    throw UsageError("--on_hang restart needs --max_restarts N, which says how often the job may be started again");
  }
  if (options.timeline_steps && options.timeline_file.empty()) {
    throw UsageError("--timeline_steps needs --timeline FILE, the file to write");
  }
  check_program(options);
  check_hosts(options);
  check_rendezvous(options);
  options.has_master_addr = !options.master_addr.empty();
  if (options.master_addr.empty()) options.master_addr = Options::kLoopback;
  if (!options.gpus.empty() && options.nproc_per_node == Options::kUnset) {
    options.nproc_per_node = static_cast<int>(options.gpus.size());
  }
  check_prefixes(options);
  if (!options.output_folder.empty() && !(options.redirects.is_empty() && options.tee.is_empty())) {
    throw UsageError("give either --output_filename, or --redirects and --tee, not both");
  }
  if (options.start_timeout && options.store == Options::Store::kRank0) {
    throw UsageError("--start_timeout needs ddprun's own store: not with --store rank0");
  }
}

}  // namespace launcher
