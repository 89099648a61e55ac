// Internal: connects to the job's store and agrees there which process has which rank.
#pragma once

#include <chrono>
#include <string>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/core/backend_map.h"
#include "comm/group/peers.h"

namespace ddp::detail {

struct JobStore {
  c10::intrusive_ptr<c10d::Store> root{};  ///< torch.distributed's keys are made under this one
  c10::intrusive_ptr<c10d::Store> own{};   ///< our own keys of this group; null for a single process
  JobServices links{};                     ///< what GroupState needs of it
  bool hosted_here = false;                ///< this process runs the server
  int64_t generation = 0;                  ///< how many groups this process has formed on this store before
};

/// Reaches MASTER_ADDR:MASTER_PORT as torch.distributed's env:// does: a client where the launcher hosts the store,
/// else rank 0 runs the server; or opens the store in `file` unless that is "". A single process gets a store in its
/// own memory. Then registers this rank and compares with the ranks that came before: same world size, same backends,
/// rank not taken. Does not wait for other ranks, but for the server, which once it runs stays until its process ends.
/// Throws std::runtime_error with rank, address and advice.
JobStore join_store(const RankInfo& info, const BackendMap& backends, std::chrono::milliseconds timeout,
                    const std::string& file = "");

/// Why the ranks could not connect: "; never arrived: rank 1, 3", or as connect_failure_cause() of failure_cause.h.
std::string connect_failure_cause(const JobStore& store, const RankInfo& info);

/// Prefix of torch.distributed's keys in the store. The first group's is torch.distributed's own, so that ranks that
/// run Python meet ours.
std::string group_prefix(int64_t generation);

/// Sets `key` unless it has a value; returns the value it has afterwards.
std::string set_once(c10d::Store& store, const std::string& key, const std::string& value);

/// The message of a c10 exception without its C++ backtrace, in one line.
std::string message_of(const std::exception& error);

}  // namespace ddp::detail
