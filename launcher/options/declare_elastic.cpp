#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {

void declare_elastic(OptionTable& table, ElasticOptions& options) {
  table.group("When nodes come and go (--nnodes MIN:MAX)",
              "[How they do](many-nodes.md#nodes-that-come-and-go); the values of the node that coordinates count.");
  table.seconds({"--last_call", "Wait for more nodes than MIN before the first round; MAX nodes begin at once"},
                options.last_call);
  table.flag(
      {"--join_restart", "Restart when a node arrives while fewer than MAX run; else it waits for the next restart"},
      options.join_restart);
  table.number({"--host_failures", "Leave out a host that has failed this often", "", {.zero = "never"}},
               options.host_failures);
  table.number({"--restarts_per_hour",
                "Failures within an hour that the job survives by a restart; one more ends it",
                "",
                {.zero = "as `--max_restarts`"}},
               options.restarts_per_hour);
}

}  // namespace launcher
