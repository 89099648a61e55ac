// Estimates the duration of an all-reduce on ranks that are distributed over hosts. A message takes its latency plus
// its bytes divided by the bandwidth (Hockney, "The communication challenge for MPP", 1994). Times are in nanoseconds.
#pragma once

#include <cstdint>
#include <string_view>

namespace ddp::timelines {

// The properties of a connection that transfers messages.
struct Link {
  double bandwidth = 0;  // bytes per second, in each direction
  double latency = 0;    // of one message, in nanoseconds

  double time_of(double bytes) const { return latency + 1e9 * bytes / bandwidth; }
};

struct Network {
  Link between{};  // between hosts; the bandwidth is that of a whole host
  Link within{};   // within a host, from one rank to another
};

struct Placement {
  std::int64_t ranks = 1;
  std::int64_t hosts = 1;  // each has the same number of ranks

  std::int64_t ranks_per_host() const { return ranks / hosts; }
};

enum class Algorithm : std::uint8_t { kRing, kHierarchical };
std::string_view name_of(Algorithm algorithm);

// One ring over all ranks, in which the ranks of a host are neighbours (Patarasuk and Yuan, "Bandwidth optimal
// all-reduce algorithms", 2009): 2 (ranks - 1) messages of bytes / ranks, each limited by the slowest link of the ring.
double ring_time(double bytes, const Placement& placement, const Network& network);

// Reduce-scatter within each host, then an all-reduce of each part between the hosts, then all-gather within each host.
// The parts of a host share its connection to the other hosts.
double hierarchical_time(double bytes, const Placement& placement, const Network& network);

}  // namespace ddp::timelines
