#include <cstdint>
#include <string>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {

void declare_hosts(OptionTable& table, Options& options) {
  SshOptions& ssh = options.ssh;
  table.group("On which hosts");
  table.text("-H,--hosts,--host", options.hosts, "HOST[:N],...", "this machine",
             "Start ranks on these hosts, N on each, by ssh where it is not this machine, as mpirun and horovodrun do");
  table.text("--hostfile", options.host_file, "FILE", "none",
             "The hosts, one per line: HOST slots=N (mpirun, horovodrun, deepspeed) or HOST:N");
  table.text("--include", options.include, "HOST[:SLOT,...]@...", "all",
             "Of the hosts only these, and of their GPUs these, as deepspeed has it");
  table.text("--exclude", options.exclude, "HOST[:SLOT,...]@...", "none", "Of the hosts and their GPUs not these");
  table.parsed(
      "--ssh_port",
      [&ssh](const std::string& text) {
        ssh.port = static_cast<std::uint16_t>(parse_number("--ssh_port", text, 1, 65535));
      },
      "PORT", "ssh's", "Where the hosts' ssh servers listen");
  table.text("--ssh_identity", ssh.identity, "FILE", "ssh's", "Private key for the hosts");
  table.text("--ssh_command", ssh.command, "COMMAND", "ssh", "Instead of ssh, with options that are given in front");
  table.seconds("--ssh_timeout", ssh.timeout, "30",
                "For a host to be reached, and of silence after which the connection to it is lost");
  table.number("--ssh_fanout", ssh.fanout, 1, 4096, "16",
               "Connections that one ddprun opens; with more hosts these connect to the others");
  table.text("--remote_ddprun", ssh.remote_ddprun, "FILE", "where this one is, else in PATH", "ddprun on the hosts");
  // Not for users: a ddprun that was started for one node has it.
  table.hidden("--part_of_job", [&](const std::string& text) {
    options.part_descriptor = parse_number("--part_of_job", text, 0, 1 << 20);
  });
}

}  // namespace launcher
