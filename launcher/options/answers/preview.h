// What a job would start, as text (--dry_run, --show_env). Nothing is started.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/options.h"
#include "launcher/plan/program.h"

namespace launcher {

// One block per rank of this node: its place, its GPU and the variables that ddprun sets; with `program` also the file
// and the arguments. `gpus`: UUIDs in the driver's order; nothing without a driver. What is decided only at the start
// is in angle brackets, such as MASTER_PORT=<free port>.
std::string preview(const Options& options, const std::optional<Program>& program,
                    const std::vector<std::string>& inherited, const std::optional<std::vector<std::string>>& gpus);

}  // namespace launcher
