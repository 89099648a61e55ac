#include <signal.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"
#include "launcher/options/usage_error.h"
#include "launcher/os/system/signals.h"

namespace launcher {
namespace {

std::vector<int> parse_stop_signals(const std::string& text) {
  // Signals that ddprun needs itself, or that no program can handle.
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

}  // namespace

void declare_ending(OptionTable& table, EndingOptions& options) {
  table.group("Stopping and restarting");
  table.seconds({"--grace", "Time between asking a process to stop and killing it",
                 "Under [Slurm](many-nodes.md#slurm) it ends before KillWait does."},
                options.grace);
  table.seconds({"--timeout", "Stop the job after this time, with status 124",
                 "Whatever it is doing, even waiting for a restart."},
                options.timeout);
  table.number(torchrun_option({"--max_restarts", "How often a failed job is restarted",
                                "As a whole (on all nodes) and with a fresh store."}),
               options.max_restarts);
  table.seconds({"--restart_backoff", "Time to wait before each restart"}, options.restart_backoff);
  table.flag({"--keep_daemons", "Do not end processes that the ranks leave running", "Unless ddprun itself fails."},
             options.keep_daemons);
  table.choice({"--exit_code", "Status of a failed job: the first failing rank's, or always 1",
                "`torchrun`: 1 for every status that comes from the ranks or from a signal."},
               options.torchrun_exit_code, {{"worker", false}, {"torchrun", true}});
  table.parsed(torchrun_option({"--signals_to_handle LIST", "Signals to ddprun that stop the ranks",
                                "A default signal that is left out ends ddprun, and with it the whole job, at once."}),
               signal_list(options.stop_signals),
               [&](const std::string& text) { options.stop_signals = parse_stop_signals(text); });
  table.parsed({"--debug RANK", "Run this rank under gdb in this terminal",
                "The terminal must be standard input. Scripts: their interpreter."},
               options.debug_rank ? std::to_string(*options.debug_rank) : "",
               [&](const std::string& text) { options.debug_rank = parse_number("--debug RANK", text, 0, 1 << 30); });
}

}  // namespace launcher
