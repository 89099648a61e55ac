#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {

void declare_elastic(OptionTable& table, ElasticOptions& options) {
  table.group("When nodes come and go (--nnodes MIN:MAX)",
              "[How they do](many-nodes.md#nodes-that-come-and-go); those of the node that coordinates count.");
  table.seconds({"--last_call", "For more nodes than MIN to come before the first round; MAX nodes begin at once"},
                options.last_call);
  table.flag(
      {"--join_restart", "Restart for a node that comes while fewer than MAX run; else it waits for the next restart"},
      options.join_restart);
  table.number({"--host_failures", "Leave a host out that has failed so often", "", {.zero = "never"}},
               options.host_failures);
  table.number({"--restarts_per_hour",
                "Failures within an hour after which the job is restarted; one more ends it",
                "",
                {.zero = "as `--max_restarts`"}},
               options.restarts_per_hour);
}

}  // namespace launcher
