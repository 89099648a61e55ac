#include "launcher/plan/resources.h"

#include <cstdlib>

#include "base/joined.h"
#include "launcher/os/machine/gpu_driver.h"
#include "launcher/os/machine/gpu_information.h"
#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

std::string list(const std::vector<std::string>& gpus) {
  return ddp::detail::joined(gpus, ",");
}

// The value of CUDA_VISIBLE_DEVICES before it is reduced to one GPU per rank.
std::optional<std::string> shown_gpus(const Options& options) {
  if (!options.gpus.empty()) return list(options.gpus);
  const char* inherited = std::getenv("CUDA_VISIBLE_DEVICES");
  return inherited == nullptr ? std::nullopt : std::optional<std::string>(inherited);
}

void check_named_gpus(const Options& options, const std::vector<std::string>& installed) {
  for (const std::string& gpu : options.gpus) {
    if (visible_gpus(installed, gpu.c_str()) == 1) continue;
    throw LaunchError("--gpus " + list(options.gpus) + ": there is no GPU " + gpu + "; this machine has " +
                      std::to_string(installed.size()) +
                      (installed.empty() ? "" : ", numbered from 0; nvidia-smi -L lists them"));
  }
  if (visible_gpus(installed, list(options.gpus).c_str()) == 0) {
    throw LaunchError("--gpus " + list(options.gpus) + " names one GPU twice");
  }
}

void check_gpus(const Options& options) {
  if (options.gpus.empty() && !options.virtual_local_rank) return;
  const auto installed = ask_gpu_driver().gpus;
  if (installed && !options.gpus.empty()) check_named_gpus(options, *installed);
  if (!options.virtual_local_rank) return;
  const auto shown = shown_gpus(options);
  int count = 0;
  if (installed) {
    count = visible_gpus(*installed, shown ? shown->c_str() : nullptr);
  } else {
    while (count < options.nproc_per_node && !visible_entry(shown ? shown->c_str() : nullptr, count).empty()) ++count;
  }
  if (count >= options.nproc_per_node) return;
  throw LaunchError("--virtual_local_rank gives each of " + std::to_string(options.nproc_per_node) +
                    " ranks its own GPU, but there are " + std::to_string(count) +
                    (shown ? " in " + *shown : std::string()) + "; use -n " + std::to_string(std::max(1, count)));
}

std::vector<std::optional<int>> nodes_of_gpus(const Options& options) {
  const std::vector<GpuInformation> gpus = driver_gpus();
  const auto shown = shown_gpus(options);
  std::vector<std::optional<int>> nodes;
  for (int local_rank = 0; local_rank < options.nproc_per_node; ++local_rank) {
    const std::string entry = visible_entry(shown ? shown->c_str() : nullptr, local_rank);
    const GpuInformation* gpu = entry.empty() ? nullptr : find_gpu(gpus, entry);
    nodes.push_back(gpu == nullptr ? std::nullopt : numa_node_of_device(gpu->bus_id));
  }
  return nodes;
}

}  // namespace

Resources plan_resources(const Options& options) {
  check_gpus(options);
  switch (options.binding) {
    case Options::Binding::kCore:
      return {.bindings = bind_to_cores(usable_cpu_topology(), options.nproc_per_node)};
    case Options::Binding::kNuma:
      return {.bindings = bind_to_nodes(usable_cpu_topology(), nodes_of_gpus(options))};
    case Options::Binding::kNone:
      break;
  }
  return {};
}

}  // namespace launcher
