#include "comm/core/device_choice.h"

#include <stdexcept>

namespace ddp {

DeviceChoice choose_cuda_device(int local_rank, int local_world_size, int device_count, const std::string& exclusive,
                                const std::string& visible) {
  const std::string facts =
      "LOCAL_RANK=" + std::to_string(local_rank) + ", LOCAL_WORLD_SIZE=" + std::to_string(local_world_size) +
      ", visible CUDA devices: " + std::to_string(device_count) + ", CUDA_VISIBLE_DEVICES=" + visible;
  if (device_count < 1) {
    throw std::invalid_argument("no CUDA device is visible (" + facts + "). Use backend 'gloo' to train on the CPU.");
  }
  if (device_count == 1) return {.index = 0, .notice = ""};
  if (local_rank < device_count && local_world_size <= device_count) return {.index = local_rank, .notice = ""};
  if (!exclusive.empty()) {
    throw std::invalid_argument("more ranks than GPUs on this node, and " + exclusive + " needs one GPU per rank (" +
                                facts + "). Start at most " + std::to_string(device_count) +
                                " ranks here, or use backend 'gloo' to share GPUs.");
  }
  const int index = local_rank % device_count;
  return {.index = index,
          .notice = "more ranks than GPUs on this node: sharing GPU " + std::to_string(index) + " (" + facts + ")"};
}

bool lacks_local_rank(const std::string& source, const EnvironmentLookup& lookup) {
  return source == "Slurm" && !lookup("SLURM_LOCALID");
}

DeviceChoice choose_cuda_device_by_rank(int rank, int device_count, const std::string& visible) {
  if (device_count < 1) return choose_cuda_device(0, 1, device_count, "", visible);  // throws
  return {.index = rank % device_count, .notice = ""};
}

}  // namespace ddp
