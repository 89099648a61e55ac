// What else this machine knows about a rank's failure: where its core file is, and whether memory ran out.
#pragma once

#include <sys/resource.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/outcome/job_end.h"

namespace launcher {

// The limits of the ranks, and what the ranks have used.
struct EndContext {
  rlim_t cpu_seconds = RLIM_INFINITY;   // ulimit -t
  double used_cpu_seconds = 0;          // of all ranks that have ended
  rlim_t file_bytes = RLIM_INFINITY;    // ulimit -f
  rlim_t memory_bytes = RLIM_INFINITY;  // ulimit -v
  std::uint64_t free_shared_bytes = 1;  // of /dev/shm
};

EndContext end_context();

// Returns the cause and what to do, or "".
std::string end_cause(const RankEnd& rank, const EndContext& context);

// Where to look for the core file of a rank that ended with `rank.core_dumped`, or why no core was written when its
// signal is of the kind that leaves one; "" for other ends. `pattern`: the text of /proc/sys/kernel/core_pattern,
// `limit`: the ranks' RLIMIT_CORE, `folder`: where they started. Pure.
std::string core_hint(const RankEnd& rank, std::string_view pattern, rlim_t limit, const std::string& folder);

// Returns the number after `name` in a file such as memory.events, which has lines "name number". Pure.
std::optional<long> counter_in(std::string_view text, std::string_view name);

// Returns how many processes of this process's cgroup (v2 or v1) the kernel has killed for lack of memory; nothing if
// that is unknown.
std::optional<long> out_of_memory_kills();

// Returns the hints on one failure; there may be none. `kills_before`: out_of_memory_kills() when the job started.
// `signal_reason`: why ddprun itself sent the rank a signal; "" if it did not.
std::vector<std::string> failure_hints(const RankEnd& rank, std::optional<long> kills_before, const std::string& folder,
                                       const std::string& signal_reason = "");

// Where the ranks start: `working_folder`, or ddprun's own when that is empty.
std::string folder_of_ranks(const std::string& working_folder);

// Adds to `end` what only the report on its first failure needs: hints, and the rank's GPU. `working_folder`: where the
// ranks started, empty when that is ddprun's own. `gpu_of`: a local rank's entry of CUDA_VISIBLE_DEVICES, or "".
// `signal_reason`: see failure_hints().
void add_failure_details(JobEnd& end, std::optional<long> kills_before, const std::string& working_folder,
                         const std::function<std::string(int local_rank)>& gpu_of,
                         const std::function<std::string(const RankEnd& rank)>& signal_reason = nullptr);

}  // namespace launcher
