// Finds the scheduler that started ddprun, among all whose variables are set. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/schedulers/process_context.h"
#include "launcher/plan/schedulers/systems.h"

namespace launcher {

struct Detection {
  std::optional<ScheduledPlace> place = std::nullopt;
  std::vector<std::string>
      notes{};  // other schedulers whose variables are set, and why they do not count, one line for each
};

// The system that started this process takes precedence over the system that provided the machine: first Open MPI,
// MPICH, jsrun and srun, in this order, then the operators and services that number containers or machines. All of the
// latter that are present must agree. In a rank that another launcher started, none of them counts. Throws nothing:
// invalid values become the place's problem.
Detection detect_scheduler(const ProcessContext& context);

}  // namespace launcher
