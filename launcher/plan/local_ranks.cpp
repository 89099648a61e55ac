#include "launcher/plan/local_ranks.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <utility>

#include "launcher/os/machine/gpu_driver.h"
#include "launcher/os/machine/gpu_information.h"
#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

int one_per_gpu(bool or_per_cpu) {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  const GpuDriver driver = ask_gpu_driver();
  const int gpus = driver.gpus ? visible_gpus(*driver.gpus, visible) : 0;
  if (gpus > 0) return gpus;
  if (or_per_cpu) return usable_cpus();
  constexpr const char* kAdviceWithoutGpus = "; --nproc_per_node=N or cpu starts ranks without GPUs";
  if (!driver.gpus) throw LaunchError("--nproc_per_node=gpu: " + driver.problem + kAdviceWithoutGpus);
  throw LaunchError("--nproc_per_node=gpu: none of the " + std::to_string(driver.gpus->size()) + " GPUs is visible" +
                    (visible != nullptr ? " with CUDA_VISIBLE_DEVICES=" + std::string(visible) : "") +
                    kAdviceWithoutGpus);
}

int requested_ranks(int nproc_per_node) {
  switch (nproc_per_node) {
    case Options::kOnePerCpu:
      return usable_cpus();
    case Options::kOnePerGpu:
      return one_per_gpu(/*or_per_cpu=*/false);
    case Options::kAutomatic:
      return one_per_gpu(/*or_per_cpu=*/true);
    default:
      return nproc_per_node;
  }
}

LocalRanks single_rank() {
  // The answer is only needed for a hint, so the wait is short.
  const GpuDriver driver = ask_gpu_driver(std::chrono::seconds(2));
  const int gpus = driver.gpus ? visible_gpus(*driver.gpus, std::getenv("CUDA_VISIBLE_DEVICES")) : 0;
  if (gpus <= 1) return {};
  return {.count = 1,
          .hint = "1 rank is started, but " + std::to_string(gpus) +
                  " GPUs are visible; --nproc_per_node=gpu starts one on each"};
}

}  // namespace

LocalRanks local_ranks(const Options& options) {
  if (options.nproc_per_node == Options::kUnset) return single_rank();
  return {requested_ranks(options.nproc_per_node)};
}

std::vector<std::string> absent_ranks(const Options& options) {
  const std::vector<int>& shown = options.console_ranks;
  const int highest_shown = shown.empty() ? -1 : *std::max_element(shown.begin(), shown.end());
  const std::array<std::pair<const char*, int>, 3> named = {{{"--redirects", options.redirects.highest_rank()},
                                                             {"--tee", options.tee.highest_rank()},
                                                             {"--local_ranks_filter", highest_shown}}};
  std::vector<std::string> lines;
  for (const auto& [option, rank] : named) {
    if (rank < options.nproc_per_node) continue;
    lines.push_back(std::string(option) + " names local rank " + std::to_string(rank) +
                    ", which is not on this node: it has " + std::to_string(options.nproc_per_node) +
                    (options.nproc_per_node == 1 ? " rank" : " ranks"));
  }
  return lines;
}

}  // namespace launcher
