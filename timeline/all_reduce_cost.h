// How long an all-reduce takes on ranks that are spread over hosts: each message costs a latency and its bytes over a
// bandwidth (Hockney, "The communication challenge for MPP", 1994). Times are nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp::timelines {

// A connection over which messages are sent.
struct Link {
  double bandwidth = 0;  // bytes per second, in each direction
  double latency = 0;    // of a message, in nanoseconds

  double time_of(double bytes) const { return latency + 1e9 * bytes / bandwidth; }
};

struct Network {
  Link between{};  // hosts; the bandwidth is that of a whole host
  Link within{};   // a host, from one rank to another
};

struct Placement {
  std::int64_t ranks = 1;
  std::int64_t hosts = 1;  // each has equally many ranks

  std::int64_t ranks_per_host() const { return ranks / hosts; }
};

enum class Algorithm : std::uint8_t { kRing, kHierarchical };
std::string_view name_of(Algorithm algorithm);

// One ring over all ranks, those of a host next to each other (Patarasuk and Yuan, "Bandwidth optimal all-reduce
// algorithms", 2009): 2 (ranks - 1) messages of bytes / ranks, each as fast as the slowest link of the ring.
double ring_time(double bytes, const Placement& placement, const Network& network);

// Reduce-scatter within each host, an all-reduce of each part between the hosts, all-gather within each host. The
// parts of a host share its link to the others.
double hierarchical_time(double bytes, const Placement& placement, const Network& network);

}  // namespace ddp::timelines
