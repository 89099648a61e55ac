// What is sent to the hosts of a job, derived from the user's options and the hosts' own reports. Pure.
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

// It says something of one machine, or of the user's session there: HOME, HOSTNAME, TMPDIR, SSH_*, XDG_* ...
bool belongs_to_machine(std::string_view name);

// All entries "NAME=value" but those; a variable that `exported` (of -x) names travels whatever it is.
std::vector<std::string> forwarded_environment(std::span<const std::string> own, std::span<const std::string> exported);

// The environment of a process on another host: what was forwarded, and of the host's own variables those that did not.
std::vector<std::string> merged_environment(std::span<const std::string> of_host, std::vector<std::string> forwarded);

// Options that another node's ddprun takes over from the user's: all but those that say who takes part and where.
std::vector<std::string> forwarded_arguments(const std::vector<std::string>& own_arguments);

// Where the nodes meet.
struct RendezvousEndpoint {
  std::string address{};
  std::uint32_t port = 0;
  std::string run_id{};
};
// The arguments of node `number`'s own ddprun.
NodeArguments node_arguments(const std::vector<JobNode>& nodes, std::size_t number, const RendezvousEndpoint& endpoint,
                             const Options& options);

// The address at which all hosts can reach node 0: the one that ssh has used, where the user named none. `is_own`: an
// address in numbers is one of this machine's. Throws LaunchError when no address is known to be right.
std::string rendezvous_host(const std::vector<JobNode>& nodes, const std::map<std::uint32_t, Hello>& hellos,
                            const std::string& own_name, const std::function<bool(const std::string&)>& is_own);

// Output that one of `hosts` may have under way, so that all of it fits into memory.
std::uint32_t output_window(std::size_t hosts);

// Their numbers: those of the nodes that read standard input.
std::vector<std::uint32_t> input_nodes(const std::vector<JobNode>& nodes, const StandardInput& input);

// "b" of "me@b".
std::string name_without_user(const std::string& host);

}  // namespace launcher::remote
