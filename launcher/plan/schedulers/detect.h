// Which scheduler started ddprun, of all whose variables are there. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/schedulers/process_context.h"
#include "launcher/plan/schedulers/systems.h"

namespace launcher {

struct Detection {
  std::optional<ScheduledPlace> place = std::nullopt;
  std::vector<std::string> notes{};  // what else is there and why it does not count, a line each
};

// What started this very process counts before what gave it the machine: Open MPI, MPICH, jsrun and srun come in this
// order before the operators and services that give a container or a machine its number. Of those all that are there
// must agree. In a rank that another launcher started nothing counts. Throws nothing: what cannot be right is the
// place's obstacle.
Detection detect_scheduler(const ProcessContext& context);

}  // namespace launcher
