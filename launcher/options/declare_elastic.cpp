#include "launcher/options/declare_options.h"
#include "launcher/options/option_table.h"

namespace launcher {

void declare_elastic(OptionTable& table, ElasticOptions& elastic) {
  table.group("When nodes come and go (--nnodes MIN:MAX)");
  table.seconds("--last_call", elastic.last_call, "30",
                "For more nodes than MIN to come before the first round; MAX nodes begin at once");
  table.flag("--join_restart", elastic.join_restart,
             "Restart for a node that comes while fewer than MAX run; else it waits for the next restart");
  table.number("--host_failures", elastic.host_failures, 0, 1 << 20, "0: never",
               "Leave a host out that has failed so often");
  table.number("--restarts_per_hour", elastic.restarts_per_hour, 0, 1 << 20, "0: as --max_restarts",
               "Failures within an hour after which the job is restarted; one more ends it");
}

}  // namespace launcher
