// Ranks as threads of the test program: each has a process group of its own, so whole jobs run in one process.
#pragma once

#include <chrono>
#include <functional>
#include <ostream>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp::test {

/// What carries the collectives.
enum class Wire {
  kGloo,   ///< LibTorch's gloo backend on loopback
  kShm,    ///< memory that the ranks share
  kHosts,  ///< the same as if every other rank were on another host: gloo between those
  kLate,   ///< results arrive late and are NaN until then; synchronous calls return no Work, as with NCCL
};

inline std::ostream& operator<<(std::ostream& stream, Wire wire) {
  constexpr const char* kNames[] = {"gloo", "shm", "hosts", "late"};
  return stream << kNames[static_cast<int>(wire)];
}

/// What ProcessGroupOptions::backend calls it. Ranks on devices (placement.h) have one backend whatever the wire.
const char* backend_of(Wire wire);

/// Those of `of_cpu` that differ where the test's tensors lie (placement.h): all on the CPU, one on devices.
std::vector<Wire> wires(std::vector<Wire> of_cpu = {Wire::kGloo, Wire::kShm, Wire::kHosts, Wire::kLate});

struct RankOptions {
  Wire wire = Wire::kGloo;
  std::chrono::milliseconds timeout = std::chrono::seconds(120);
};

/// Runs `body` on `size` ranks at once and waits for all of them. The first exception in time is rethrown.
/// Assertions in `body` are those of tests/support/rank_checks.h.
void run_ranks(int size, const std::function<void(const GroupHandle& group)>& body, const RankOptions& options = {});

/// A rank that knows who it is but has no connections: collectives throw.
GroupHandle unconnected_rank(int rank, int size);

/// Whether small gradient buckets of `group` go from rank to rank without a ring.
bool exchanges_directly(const GroupHandle& group);

}  // namespace ddp::test
