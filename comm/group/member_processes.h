// Internal: on which host and in which process each rank of a group is.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <ddprun/comm/process_group.h>

namespace ddp::detail {

struct ProcessIdentity {
  std::string host{};  ///< host_identity()
  int pid = 0;         ///< as the processes of that host know it

  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

/// Those of all ranks of `group`, in rank order; empty for a group without a store, and where ranks run Python. The
/// ranks exchange them through the store at the first call, which all must make; later calls return the same. Throws
/// std::runtime_error when a rank does not arrive within `timeout`.
std::vector<ProcessIdentity> member_processes(const GroupHandle& group, std::chrono::milliseconds timeout);

}  // namespace ddp::detail
