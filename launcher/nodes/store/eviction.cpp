#include "launcher/nodes/store/eviction.h"

#include <algorithm>
#include <cstddef>
#include <map>

namespace launcher::store {
namespace {

// A process of this job that holds more connections than this loses the oldest.
constexpr std::size_t kFairShare = 16;
// On several nodes a connection that has not used the store for so long is nobody's.
constexpr auto kTimeToSpeak = std::chrono::seconds(1);

template <typename MayGo>
std::optional<Eviction> oldest(const std::vector<EvictionCandidate>& candidates, const char* reason,
                               const MayGo& may_go) {
  std::optional<Eviction> found;
  for (const EvictionCandidate& candidate : candidates) {
    if ((!found || candidate.id < found->id) && may_go(candidate)) found = Eviction{candidate.id, reason};
  }
  return found;
}

}  // namespace

std::optional<Eviction> find_outsider(const std::vector<EvictionCandidate>& candidates, bool knows_all,
                                      std::chrono::steady_clock::time_point now) {
  const auto is_outsider = [&](const EvictionCandidate& c) {
    return c.owner == 0 && (knows_all || (!c.uses_store && c.accepted < now - kTimeToSpeak));
  };
  const auto is_silent = [&](const EvictionCandidate& c) { return is_outsider(c) && !c.is_known; };
  if (auto silent = oldest(candidates, "it has sent no request", is_silent)) return silent;
  return oldest(candidates, "it belongs to no process of this job", is_outsider);
}

std::optional<Eviction> find_greediest(const std::vector<EvictionCandidate>& candidates) {
  std::map<pid_t, std::size_t> counts;
  for (const EvictionCandidate& candidate : candidates) {
    if (candidate.owner.value_or(0) != 0) ++counts[*candidate.owner];
  }
  const auto largest =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (largest == counts.end() || largest->second <= kFairShare) return std::nullopt;
  return oldest(candidates, "its process has the most",
                [&](const EvictionCandidate& c) { return c.owner == largest->first; });
}

}  // namespace launcher::store
