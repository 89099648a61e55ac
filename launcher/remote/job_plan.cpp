#include "launcher/remote/job_plan.h"

#include <algorithm>
#include <array>
#include <set>
#include <sstream>
#include <utility>

#include "launcher/os/system/launch_error.h"

namespace launcher::remote {
namespace {

constexpr std::array<std::string_view, 17> kNames = {
    "HOME",   "USER",    "LOGNAME",  "SHELL",           "MAIL",       "HOSTNAME",   "HOST",    "OLDPWD", "SHLVL",
    "TMPDIR", "DISPLAY", "WINDOWID", "WAYLAND_DISPLAY", "XAUTHORITY", "KRB5CCNAME", "GPG_TTY", "_"};
constexpr std::array<std::string_view, 5> kBeginnings = {"SSH_", "XDG_", "DBUS_", "SUDO_", "SYSTEMD_"};

std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

constexpr std::array<std::string_view, 23> kHostSpecificVariables = {
    "hosts",        "hostfile",    "include",        "exclude",       "ssh_command",   "ssh_port",
    "ssh_identity", "ssh_timeout", "ssh_fanout",     "remote_ddprun", "nnodes",        "node_rank",
    "master_addr",  "master_port", "standalone",     "rdzv_backend",  "rdzv_endpoint", "rdzv_secret_file",
    "rdzv_id",      "rdzv_conf",   "nproc_per_node", "check",         "node_order"};

constexpr std::size_t kTotalWindowBytes = std::size_t{64} << 20;
constexpr std::size_t kMinWindow = std::size_t{16} << 10;
constexpr std::size_t kMaxWindow = std::size_t{256} << 10;

// The content of SSH_CONNECTION: the client's address and port, then the server's.
struct Connection {
  std::string client{};
  std::string server{};
};
Connection parse_connection(const std::string& text) {
  Connection connection;
  std::string port;
  std::istringstream arguments(text);
  arguments >> connection.client >> port >> connection.server;
  return connection;
}

bool is_loopback_address(const std::string& address) {
  return address.starts_with("127.") || address == "::1";
}

std::string ranks_argument(int ranks) {
  switch (ranks) {
    case Options::kOnePerGpu:
      return "gpu";
    case Options::kOnePerCpu:
      return "cpu";
    case Options::kAutomatic:
      return "auto";
    default:
      return std::to_string(ranks);
  }
}

}  // namespace

bool belongs_to_machine(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [name](std::string_view beginning) { return name.starts_with(beginning); });
}

std::vector<std::string> forwarded_environment(std::span<const std::string> own,
                                               std::span<const std::string> exported) {
  std::vector<std::string> entries;
  for (const std::string& entry : own) {
    const bool is_exported = std::any_of(exported.begin(), exported.end(),
                                         [&](const std::string& other) { return name_of(other) == name_of(entry); });
    if (is_exported || !belongs_to_machine(name_of(entry))) entries.push_back(entry);
  }
  return entries;
}

std::vector<std::string> merged_environment(std::span<const std::string> of_host, std::vector<std::string> forwarded) {
  std::set<std::string, std::less<>> names;
  for (const std::string& entry : forwarded) names.emplace(name_of(entry));
  for (const std::string& entry : of_host) {
    if (!names.contains(name_of(entry))) forwarded.push_back(entry);
  }
  return forwarded;
}

std::vector<std::string> forwarded_arguments(const std::vector<std::string>& own_arguments) {
  std::vector<std::string> arguments;
  for (const std::string& word : own_arguments) {
    const std::string_view name = std::string_view(word).substr(std::min(word.find_first_not_of('-'), word.size()));
    if (std::find(kHostSpecificVariables.begin(), kHostSpecificVariables.end(), name.substr(0, name.find('='))) ==
        kHostSpecificVariables.end()) {
      arguments.push_back(word);
    }
  }
  return arguments;
}

NodeArguments node_arguments(const std::vector<JobNode>& nodes, std::size_t number, const RendezvousEndpoint& endpoint,
                             const Options& options) {
  const JobNode& node = nodes.at(number);
  const std::vector<std::uint32_t> readers = input_nodes(nodes, options.standard_input);
  NodeArguments own{.arguments = {"--nnodes=" + std::to_string(nodes.size()), "--node_rank=" + std::to_string(number),
                                  "--nproc_per_node=" + ranks_argument(node.ranks), "--rdzv_id=" + endpoint.run_id,
                                  "--rdzv_backend=static"},
                    .reads_input = std::find(readers.begin(), readers.end(), number) != readers.end()};
  if (nodes.size() > 1) {
    own.arguments.push_back("--master_addr=" + endpoint.address);
    own.arguments.push_back("--master_port=" + std::to_string(endpoint.port));
    own.arguments.push_back("--join_timeout=" +
                            std::to_string(static_cast<double>(options.join_timeout.count()) / 1000));
  }
  if (!node.gpus.empty()) {
    std::string list;
    for (const std::string& gpu : node.gpus) list.append(list.empty() ? "--gpus=" : ",").append(gpu);
    own.arguments.push_back(list);
  }
  if (options.mode == Options::Mode::kCheck) own.arguments.emplace_back("--check");
  return own;
}

std::string rendezvous_host(const std::vector<JobNode>& nodes, const std::map<std::uint32_t, Hello>& hellos,
                            const std::string& own_name, const std::function<bool(const std::string&)>& is_own) {
  const auto first = hellos.find(0);
  const std::string server = first == hellos.end() ? "" : parse_connection(first->second.connection).server;
  const bool are_all_here = std::all_of(hellos.begin(), hellos.end(), [&](const auto& hello) {
    const std::string address = parse_connection(hello.second.connection).server;
    return address.empty() || is_loopback_address(address);
  });
  if (!nodes.front().is_local && server.empty()) return host_without_user(nodes.front().host);
  if (!nodes.front().is_local && (are_all_here || !is_loopback_address(server))) return server;
  // Node 0 is on this machine. The others know it by the address from which they were connected.
  std::string refused;
  for (const auto& [number, hello] : hellos) {
    const std::string client = parse_connection(hello.connection).client;
    if (client.empty() || (is_loopback_address(client) && !are_all_here)) continue;
    if (is_own(client)) return client;
    refused = "host " + nodes.at(number).host + " sees this machine as " + client +
              ", which is not one of its addresses; name one that all hosts reach with --master_addr";
  }
  if (!refused.empty()) throw LaunchError(refused);
  return are_all_here && !nodes.front().is_local ? server : own_name;
}

std::uint32_t output_window(std::size_t hosts) {
  return static_cast<std::uint32_t>(
      std::clamp(kTotalWindowBytes / std::max<std::size_t>(hosts, 1), kMinWindow, kMaxWindow));
}

std::vector<std::uint32_t> input_nodes(const std::vector<JobNode>& nodes, const StandardInput& input) {
  if (input.to == StandardInput::To::kNone) return {};
  std::vector<std::uint32_t> all;
  int first_rank = 0;
  for (std::uint32_t number = 0; number < nodes.size(); ++number) {
    all.push_back(number);
    if (input.to == StandardInput::To::kAll) continue;
    const int ranks = nodes[number].ranks;
    if (input.rank == 0) return {0};
    if (ranks < 0) {
      throw LaunchError(
          "--stdin " + std::to_string(input.rank) +
          ": the host of that rank is not known until each host has counted its ranks; use --stdin 0, all or none");
    }
    if (input.rank < first_rank + ranks) return {number};
    first_rank += ranks;
  }
  if (input.to == StandardInput::To::kAll) return all;
  throw LaunchError("--stdin " + std::to_string(input.rank) + ": there is no such rank, the last is " +
                    std::to_string(first_rank - 1));
}

std::string host_without_user(const std::string& host) {
  return host.substr(host.rfind('@') + 1);
}

}  // namespace launcher::remote
