// What is sent to the hosts of a job, derived from the user's options and the hosts' reports. Pure.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/job_nodes.h"
#include "launcher/plan/options.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

// True for variables of one machine, or of the user's session there: HOME, HOSTNAME, TMPDIR, SSH_*, XDG_* ...
bool belongs_to_machine(std::string_view name);

// All entries "NAME=value" except those. A variable in `exported` (-x) is always forwarded.
std::vector<std::string> forwarded_environment(std::span<const std::string> own, std::span<const std::string> exported);

// The environment of a process on another host: the forwarded variables, and those of the host's own variables that are
// never forwarded.
std::vector<std::string> merged_environment(std::span<const std::string> of_host, std::vector<std::string> forwarded);

// The user's options that another node's ddprun gets: all except those that select the hosts and the rendezvous.
std::vector<std::string> forwarded_arguments(const std::vector<std::string>& own_arguments);

// The address at which the nodes meet.
struct RendezvousEndpoint {
  std::string address{};
  std::uint32_t port = 0;
  std::string run_id{};
};
// The arguments for the ddprun of node `number`.
NodeArguments node_arguments(const std::vector<JobNode>& nodes, std::size_t number, const RendezvousEndpoint& endpoint,
                             const Options& options);

// The address at which all hosts can reach node 0: the address that ssh used, unless the user named one. `is_own`
// returns whether a numeric address belongs to this machine. Throws LaunchError when no address is known to be right.
std::string rendezvous_host(const std::vector<JobNode>& nodes, const std::map<std::uint32_t, Hello>& hellos,
                            const std::string& own_name, const std::function<bool(const std::string&)>& is_own);

// The bytes of output that one of `hosts` may have under way, so that all of them fit into memory.
std::uint32_t output_window(std::size_t hosts);

// The numbers of the nodes that read standard input.
std::vector<std::uint32_t> input_nodes(const std::vector<JobNode>& nodes, const StandardInput& input);

// Returns "b" for "me@b".
std::string host_without_user(const std::string& host);

}  // namespace launcher::remote
