// Internal: each rank of a job claims its GPU before NCCL connects them.
#pragma once

#include <chrono>
#include <string>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

struct GpuClaim {
  std::string uuid;     ///< of the physical GPU
  std::string backend;  ///< who needs one GPU per rank, for the message
  /// How long to wait for the others' claims. Ranks that run Python make none: they and later ones are left to
  /// the backend.
  std::chrono::milliseconds patience = std::chrono::seconds(5);
  bool hosts_store = false;  ///< the store goes with this process: it stays until the others know of a refusal
};

/// Throws std::runtime_error on every rank when two want the same GPU, which NCCL would only notice in the middle of
/// its start, and some ranks never. Every rank must call it. `store` is the group's own; only the current thread may
/// use it meanwhile.
void claim_gpu(c10d::Store& store, const RankInfo& info, const GpuClaim& claim);

}  // namespace ddp::detail
