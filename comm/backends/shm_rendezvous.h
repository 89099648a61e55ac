// Internal: how the ranks of a group find out over the store which of them share memory. A rank that runs Python takes
// no part: it is known by gloo's keys, which no rank of this library has set by then.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"
#include "comm/shm/segment.h"

namespace ddp::detail {

/// What all ranks that have met know, in the same words.
struct ShmRendezvous {
  std::optional<int> python{};            ///< a rank that runs Python: then no ranks share memory
  std::string why_not{};                  ///< why ranks of one host share none although they might; else empty
  bool any_host_shares = false;           ///< there is a host whose ranks share memory
  std::vector<int> hosts{};               ///< of each rank: its host, numbered from 0 in the order of their first ranks
  std::optional<shm::Segment> segment{};  ///< of this rank's host, where nothing is in the way
};

/// All ranks of the group that run this library call it; `host` is the caller's, see host_identity(). Those of equal
/// `host` share a segment, if all of them can attach to it. `store` is that of the group's CPU backend, the one in
/// which gloo keeps its keys. Throws std::runtime_error when not all ranks arrive within `timeout`.
ShmRendezvous shm_rendezvous(const RankInfo& info, const std::string& host, c10d::Store& store,
                             std::chrono::milliseconds timeout);

}  // namespace ddp::detail
