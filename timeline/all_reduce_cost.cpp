#include "timeline/all_reduce_cost.h"

#include <algorithm>

namespace ddp::timelines {
namespace {

// The time of two passes around a ring with `members` members.
double turns(std::int64_t members, double message_time) {
  if (members < 2) return 0;
  return 2 * static_cast<double>(members - 1) * message_time;
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  return algorithm == Algorithm::kRing ? "ring" : "hierarchical";
}

double ring_time(double bytes, const Placement& placement, const Network& network) {
  const double part = bytes / static_cast<double>(placement.ranks);
  double message = 0;
  if (placement.hosts > 1) message = network.between.time_of(part);
  if (placement.ranks_per_host() > 1) message = std::max(message, network.within.time_of(part));
  return turns(placement.ranks, message);
}

double hierarchical_time(double bytes, const Placement& placement, const Network& network) {
  const auto local = static_cast<double>(placement.ranks_per_host());
  const double within = turns(placement.ranks_per_host(), network.within.time_of(bytes / local));
  return within + turns(placement.hosts, network.between.time_of(bytes / static_cast<double>(placement.hosts)));
}

}  // namespace ddp::timelines
