// Which connection to the store has to go when few descriptors are left: one that the job will not miss. Pure.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <vector>

#include "launcher/nodes/store/reply_queue.h"

namespace launcher::store {

struct EvictionCandidate {
  ConnectionId id = 0;                        // older ones have lower numbers
  std::optional<pid_t> owner = std::nullopt;  // once looked for; 0: no process of this job
  bool is_known = false;                      // has sent a valid request
  bool uses_store = false;                    // has asked the store for something
  std::chrono::steady_clock::time_point accepted{};
};

struct Eviction {
  ConnectionId id = 0;
  const char* reason = "";
};

// The oldest one of no process of this job, silent ones before others. `knows_all`: who is not known to be of this job
// is not; else, on several nodes, only who has not used the store for a while.
std::optional<Eviction> find_outsider(const std::vector<EvictionCandidate>& candidates, bool knows_all,
                                      std::chrono::steady_clock::time_point now);
// The oldest one of the process that has most, when that is more than its fair share.
std::optional<Eviction> find_greediest(const std::vector<EvictionCandidate>& candidates);

}  // namespace launcher::store
