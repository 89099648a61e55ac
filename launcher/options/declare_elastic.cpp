#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {

void declare_elastic(OptionTable& table, ElasticOptions& options) {
  table.group("Jobs whose number of nodes changes (--nnodes MIN:MAX)",
              "[Details](many-nodes.md#nodes-that-come-and-go); the values of the node that coordinates count.");
  table.seconds({"--last_call", "Time to wait for more than MIN nodes before the first round; MAX nodes begin at once"},
                options.last_call);
  table.flag(
      {"--join_restart", "Restart when a node arrives while fewer than MAX run; else it waits for the next restart"},
      options.join_restart);
  table.number({"--host_failures", "Exclude a host that has failed this often", "", {.zero = "never"}},
               options.host_failures);
  table.number({"--restarts_per_hour",
                "Restarts of a failed job within an hour; one more failure ends it",
                "",
                {.zero = "the value of `--max_restarts`"}},
               options.restarts_per_hour);
}

}  // namespace launcher
