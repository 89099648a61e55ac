#include "launcher/remote/job_start_message.h"

#include <filesystem>
#include <system_error>

#include "launcher/nodes/control/secret.h"
#include "launcher/os/system/file_bytes.h"
#include "launcher/os/system/host_name.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/rank_plan.h"
#include "launcher/remote/child_process.h"

namespace launcher::remote {
namespace {

// The user's secret, or one that was made for this job. Empty if a host lacks libsodium, as it could not check it.
std::string secret_for(const Options& options, const std::vector<JobNode>& nodes,
                       const std::map<std::uint32_t, Hello>& hellos, std::string& note) {
  if (!options.secret_file.empty()) return file_bytes("--rdzv_secret_file", options.secret_file, std::size_t{1} << 16);
  if (nodes.size() == 1) return "";
  for (const auto& [number, hello] : hellos) {
    if (hello.has_secrets) continue;
    note =
        "host " + nodes.at(number).host +
        " has a ddprun without libsodium: any process that can connect to the port of the launchers can join this job";
    return "";
  }
  return control::has_secrets() ? control::new_challenge() : "";
}

std::string current_folder() {
  std::error_code error;
  std::string folder = std::filesystem::current_path(error);
  if (error) throw LaunchError("the current folder cannot be found: " + error.message());
  return folder;
}

}  // namespace

// Paths are made absolute, because other hosts have other working folders.
SshSettings ssh_settings(const Options& options) {
  const SshOptions& ssh = options.ssh;
  std::error_code error;
  const std::filesystem::path identity = std::filesystem::absolute(ssh.identity, error);
  return {.command = ssh.command,
          .port = ssh.port.value_or(0),
          .identity = ssh.identity.empty() || error ? ssh.identity : identity.string(),
          .timeout_ms = static_cast<std::uint32_t>(ssh.timeout.count()),
          .fanout = static_cast<std::uint32_t>(ssh.fanout),
          .remote_ddprun = ssh.remote_ddprun,
          .own_path = own_program()};
}

void check_for_hosts(const Options& options, const std::vector<JobNode>& nodes) {
  if (options.debug_rank) throw LaunchError("--debug works on this machine only, not on the hosts of -H");
  if (options.store == Options::Store::kRank0 && nodes.size() > 1) {
    throw LaunchError("--store rank0 works on one node only: several nodes use the store of node 0's launcher");
  }
  input_nodes(nodes, options.standard_input);
}

JobStartMessage make_job_start_message(const Options& options, const std::vector<JobNode>& nodes,
                                       const std::map<std::uint32_t, Hello>& hellos,
                                       const std::function<bool(const std::string&)>& is_own) {
  const std::vector<std::string> own = current_environment();
  const bool shows_lines = nodes.size() > 1 || nodes.front().ranks != 1 || options.prefix.has_value();
  const bool has_own_folder = options.working_folder.starts_with('/');
  JobStartMessage message{.plan = {.arguments = forwarded_arguments(options.own_arguments),
                                   .program = options.program,
                                   .environment = forwarded_environment(own, options.exported),
                                   .folder = current_folder(),
                                   .needs_folder = !has_own_folder,
                                   .window = output_window(nodes.size()),
                                   .grace_ms = static_cast<std::uint32_t>(options.grace.count()),
                                   .keeps_lines = shows_lines && !options.no_prefix,
                                   .is_check = options.mode == Options::Mode::kCheck},
                          .endpoint = {.run_id = options.rdzv_id.empty() ? random_id() : options.rdzv_id}};
  message.plan.secret = secret_for(options, nodes, hellos, message.note);
  if (nodes.size() == 1) return message;
  const auto first = hellos.find(0);
  message.endpoint.port = options.master_port.value_or(0);
  if (message.endpoint.port == 0 && first != hellos.end()) message.endpoint.port = first->second.port;
  message.endpoint.address =
      options.has_master_addr ? options.master_addr : rendezvous_host(nodes, hellos, host_name(), is_own);
  return message;
}

}  // namespace launcher::remote
