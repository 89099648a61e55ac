// Internal: connects to the job's store and settles on it who is who.
#pragma once

#include <chrono>
#include <string>

#include "comm/backend_map.h"
#include "comm/c10d_compat.h"
#include "comm/rank_info.h"

namespace ddp::detail {

struct JobStore {
  c10::intrusive_ptr<c10d::Store> root;  ///< torch.distributed's keys are made under this one
  c10::intrusive_ptr<c10d::Store> own;   ///< our own key space; null for a single process
  bool hosted_here = false;              ///< this process runs the server
};

/// Reaches MASTER_ADDR:MASTER_PORT as torch.distributed's env:// does: a client where the launcher hosts the store,
/// else rank 0 runs the server. A single process gets a store in its own memory. Throws std::runtime_error with rank,
/// address and advice.
JobStore connect_store(const RankInfo& info, std::chrono::milliseconds timeout);

/// Registers this rank and compares with the ranks that came before: same world size, same backends, rank not taken.
/// Never waits. Returns how many groups this process has formed on this store before. Throws std::runtime_error on a
/// disagreement.
int64_t register_rank(const JobStore& store, const RankInfo& info, const BackendMap& backends);

/// Refuses a GPU that another rank of this host has claimed, which NCCL would only notice in the middle of its start.
void claim_gpu(const JobStore& store, const RankInfo& info, const std::string& uuid);

/// "; missing: rank 1, 3" for the ranks that never registered, or "" when all did or the store cannot tell.
std::string missing_ranks(const JobStore& store, const RankInfo& info);

/// The message of a c10 exception without its C++ backtrace, in one line.
std::string brief(const std::exception& error);

}  // namespace ddp::detail
