// Internal: each rank of a job claims its GPU before NCCL connects them.
#pragma once

#include <chrono>
#include <string>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

struct GpuClaim {
  std::string uuid;     ///< of the physical GPU
  std::string backend;  ///< the backend that needs one GPU per rank, for the message
  /// How long to wait for the claims of other ranks. Ranks that run Python make no claims; conflicts with them, or with
  /// ranks that claim later, are only detected by the backend.
  std::chrono::milliseconds patience = std::chrono::seconds(5);
  bool hosts_store = false;  ///< this process hosts the store, so it does not exit before the other ranks know of an
                             ///< error
};

/// Throws std::runtime_error on every rank if two ranks use the same GPU. NCCL would detect that only during its
/// initialisation, and not on all ranks. Every rank must call it. `store` is the group's store; during the call only
/// this thread may use it.
void claim_gpu(c10d::Store& store, const RankInfo& info, const GpuClaim& claim);

}  // namespace ddp::detail
