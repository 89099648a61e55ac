#include <string>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {

void declare_hosts(OptionTable& table, Options& options) {
  SshOptions& ssh = options.ssh;
  table.group("Hosts", "[How one command runs on several hosts](many-nodes.md#one-command).");
  table.text({"-H,--hosts,--host HOST[:N],...",
              "Start N ranks on each of these hosts, by ssh unless it is this machine, as mpirun and horovodrun do",
              "A host may also be `user@host` or `[IPv6 address]:N`. Without `-n` each host gets N ranks, without `:N` "
              "one.",
              {.unset = "this machine"}},
             options.hosts);
  table.text({"--hostfile FILE", "The hosts, one per line: `HOST slots=N` (mpirun, horovodrun, deepspeed) or `HOST:N`",
              "With or without `max_slots=M`; `HOST:N` is hydra's. `#` begins a comment."},
             options.host_file);
  table.text({"--include HOST[:SLOT,...]@...",
              "Use only these hosts, and only these of their GPUs, as in deepspeed",
              "Slots are the numbers of GPUs, and become the host's `--gpus`.",
              {.unset = "all"}},
             options.include);
  table.text({"--exclude HOST[:SLOT,...]@...", "Leave out these hosts, or these of their GPUs"}, options.exclude);
  table.port({"--ssh_port", "Port of the hosts' ssh servers", "", {.unset = "ssh's"}}, ssh.port, 1);
  table.text({"--ssh_identity FILE", "Private key for the hosts", "", {.unset = "ssh's"}}, ssh.identity);
  table.text({"--ssh_command COMMAND", "Command to run instead of ssh, which may include options",
              "As in `\"ssh -F config -J gateway\"`; it must take ssh's options."},
             ssh.command);
  table.seconds({"--ssh_timeout", "Time to reach a host, and silence after which the connection to it counts as lost"},
                ssh.timeout, std::chrono::seconds(1));
  table.number({"--ssh_fanout", "Connections that one ddprun opens; further hosts are reached through these"},
               ssh.fanout, {1, 4096});
  table.text({"--remote_ddprun FILE", "Path of ddprun on the hosts", "", {.unset = "path of this ddprun, else PATH"}},
             ssh.remote_ddprun);
  // An internal option for a ddprun that another one has started for one node.
  table.hidden("--part_of_job", [&](const std::string& text) {
    options.part_descriptor = parse_number("--part_of_job", text, 0, NumberRange::kMax);
  });
}

}  // namespace launcher
