// Which GPUs and CPUs of this machine each rank uses.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/machine/cpu_binding.h"
#include "launcher/plan/options.h"

namespace launcher {

struct Resources {
  std::vector<CpuBinding> bindings{};  // one per local rank; empty: all ranks use the CPUs that ddprun may use
};

// Plans from --gpus, --virtual_local_rank and --bind_to, for options.nproc_per_node ranks. Throws LaunchError when a
// named GPU does not exist (if there is a driver to ask), or when there are fewer GPUs than ranks that need one each.
Resources plan_resources(const Options& options);

}  // namespace launcher
