// Which CUDA device a rank uses. Does not use LibTorch.
#pragma once

#include <string>

#include <ddprun/base/rank_info.h>

namespace ddp {

/// The answer of choose_cuda_device().
struct DeviceChoice {
  int index = 0;       ///< CUDA device index among the visible ones
  std::string notice;  ///< one line for the user when ranks share devices; else empty
};

/// Device LOCAL_RANK where every local rank has one; device 0 where exactly one is visible (each rank then sees its
/// own). With fewer devices than local ranks, where a backend needs one device a rank, so `exclusive`, such a backend's
/// title or "", makes that an error; otherwise ranks wrap around, with a notice. `visible` is the text of
/// CUDA_VISIBLE_DEVICES for the message, "unset" when it is. Throws std::invalid_argument that shows LOCAL_RANK, the
/// number of devices and CUDA_VISIBLE_DEVICES.
DeviceChoice choose_cuda_device(int local_rank, int local_world_size, int device_count, const std::string& exclusive,
                                const std::string& visible);

/// Whether a scheduler set only the rank and not the local rank (`source` is RankInfo's): Slurm's SLURM_PROCID without
/// SLURM_LOCALID.
bool lacks_local_rank(const std::string& source, const EnvironmentLookup& lookup);

/// The device in that case, as programs for Slurm choose it: rank % devices. Throws as choose_cuda_device() does if
/// there is no device.
DeviceChoice choose_cuda_device_by_rank(int rank, int device_count, const std::string& visible);

}  // namespace ddp
