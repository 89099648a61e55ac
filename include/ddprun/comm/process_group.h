// The process group: the ranks of a job and the connections between them, groups of some of them, and output by one
// rank for all. ProcessGroup owns the connections, GroupHandle refers to them.
#pragma once

#include <c10/core/Device.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include <ddprun/base/rank_info.h>

namespace ddp {

namespace detail {
class GroupState;
}

/// Settings of init_process_group(), all optional.
struct ProcessGroupOptions {
  /// The backend for each kind of device, as in torch.distributed: "gloo", "nccl" or "cpu:gloo,cuda:nccl". If empty, it
  /// is "cpu:shm,cuda:nccl" where a CUDA device is usable and "shm" elsewhere, with gloo instead of shm if the ranks
  /// cannot share memory. All ranks must give the same value.
  std::string backend{};
  /// Longest wait for a peer, in a collective and while connecting. Default as in torch.distributed: 10 minutes when
  /// NCCL is the only backend, else 30 minutes.
  std::optional<std::chrono::milliseconds> timeout{};
  /// This rank's device. Default: CUDA device LOCAL_RANK (0 when exactly one is visible) with a CUDA backend, else the
  /// CPU.
  std::optional<c10::Device> device{};
  /// This rank's number and world size in the job. Default: rank_info_from_environment().
  std::optional<RankInfo> rank_info{};
  /// Where the ranks meet, as torch.distributed's init_method: "env://" (also ""), "tcp://host:port", where rank 0
  /// hosts the store unless the launcher hosts one at that address, or "file:///path", a file in a file system that all
  /// ranks share. An earlier job must not have left that file. The last two need no MASTER_ADDR. "?rank=R&world_size=N"
  /// at the end gives rank and world size instead of rank_info or the environment.
  std::string init_method{};
};

/// A reference to a process group that can be copied freely and kept as a member. It does not keep the connections
/// open: once the owning ProcessGroup is closed, every use but is_open(), rank(), size(), device() and backend()
/// throws.
class GroupHandle {
 public:
  /// Called by the library; programs do not call it.
  explicit GroupHandle(std::shared_ptr<detail::GroupState> state);

  int rank() const;            ///< this process, 0 … size()-1
  int size() const;            ///< number of processes (world size)
  int local_rank() const;      ///< this process among those on its node
  c10::Device device() const;  ///< the device bound to this rank
  const std::string& backend()
      const;                     ///< its backends: "shm", "gloo", "cpu:gloo,cuda:nccl"; "local" for a single process
  const RankInfo& info() const;  ///< this rank's numbers in the job, and whose variables they were read from
  bool is_open() const;          ///< false once the owner was closed

  /// For this library only: the handle's state, connected.
  detail::GroupState& state() const;
  /// The handle's state, which may not be connected yet if the group connects at its first use.
  detail::GroupState& unconnected_state() const;

 private:
  std::shared_ptr<detail::GroupState> state_;
};

/// Owner of a process group's connections; move-only. Everything that works on the group takes a GroupHandle, to which
/// this converts. The destructor closes the group. Normally it waits for running collectives, as close() does. While an
/// exception unwinds the stack it calls abort(), so that a failing rank never waits for its peers. It never throws.
class ProcessGroup {
 public:
  /// Called by init_process_group() and new_group(); programs do not call it.
  explicit ProcessGroup(std::shared_ptr<detail::GroupState> state);
  ~ProcessGroup();
  ProcessGroup(ProcessGroup&& other) noexcept;
  ProcessGroup& operator=(ProcessGroup&& other) noexcept;

  /// This process, 0 … size()-1.
  int rank() const { return handle_.rank(); }
  /// Number of processes (world size).
  int size() const { return handle_.size(); }
  /// This process among those on its node.
  int local_rank() const { return handle_.local_rank(); }
  /// The device bound to this rank.
  c10::Device device() const { return handle_.device(); }
  /// As GroupHandle::backend().
  const std::string& backend() const { return handle_.backend(); }
  /// As GroupHandle::info().
  const RankInfo& info() const { return handle_.info(); }
  /// False after close() or abort().
  bool is_open() const { return handle_.is_open(); }

  /// The handle. Implicit on purpose: every function takes a GroupHandle, and users hold a ProcessGroup.
  operator const GroupHandle&() const { return handle_; }
  /// A reference that can be copied; it does not keep the connections open.
  const GroupHandle& handle() const { return handle_; }

  /// Shuts the connections down after running collectives have ended. Every rank should call it (or destroy the group).
  /// It may be called twice; the second call does not wait for one that runs in another thread. Throws what the backend
  /// reports.
  void close();

  /// Closes the connections at once, without waiting for peers. A close() that waits in another thread then ends at
  /// once too, except on gloo. Never throws.
  void abort() noexcept;

 private:
  void release() noexcept;

  GroupHandle handle_;
  bool owns_;
  int exceptions_at_construction_;
};

/// Joins the job described by the environment (env://) or by options.init_method and returns the owner of its process
/// group. Every rank must call it, with the same backend; it returns when all ranks are connected. Without any launcher
/// variable the result is a group of one process, with no network at all.
///
/// It binds the device before it creates the store and the group, initialises NCCL eagerly, and sets malloc not to
/// return freed memory to the kernel at once (DDPRUN_MALLOPT=0 disables this).
///
/// Throws std::invalid_argument for contradicting settings and std::runtime_error, naming rank, address and what to do,
/// when the store cannot be reached, the ranks have different world sizes or backends, or ranks are missing when the
/// timeout expires.
ProcessGroup init_process_group(const ProcessGroupOptions& options = {});

/// Settings of new_group(), all optional.
struct NewGroupOptions {
  /// As ProcessGroupOptions::backend; empty: that of the group it is made from.
  std::string backend{};
  /// Longest wait for a peer; default: that of the group it is made from.
  std::optional<std::chrono::milliseconds> timeout{};
  /// On NCCL: makes the new communicator by splitting that of the parent group (ncclCommSplit), for which all ranks of
  /// that group wait for each other. It has no effect on other backends, with ranks that run Python, with
  /// TORCH_DIST_USE_NCCL2=1 and with TORCH_DISTRIBUTED_DEBUG=DETAIL. It must be equal on all ranks.
  bool split = false;
};

/// Connects some ranks of `group` as a new group and returns its owner; returns nullopt on ranks that are not members.
/// Every rank of `group` must call it, also the ranks that are not members, with the same list and in the same order of
/// calls. Only the members wait for each other. The members are numbered in the order of their ranks in `group`,
/// whatever the order of the list, as in torch.distributed.new_group(), which ranks that run Python can call as the
/// counterpart.
///
/// The owner must be closed or destroyed before that of `group`. Independent streams of collectives (metrics, a stop
/// flag, another thread) each need a group of their own. Throws std::invalid_argument for an empty list, a repeated
/// rank or a rank that is not in `group`, and std::runtime_error when the ranks' lists differ (the message has both) or
/// a member does not call it in time.
std::optional<ProcessGroup> new_group(const GroupHandle& group, std::vector<int> ranks,
                                      const NewGroupOptions& options = {});

/// Divides `group` into sub-groups of `group_size` consecutive ranks each, connects this rank with the other ranks of
/// its sub-group, and returns the owner of that sub-group, as torch.distributed.new_subgroups() does. Every rank of
/// `group` must call it. Throws as new_group(), and std::invalid_argument for a size that does not divide the group's.
ProcessGroup new_subgroups(const GroupHandle& group, int group_size, const NewGroupOptions& options = {});

/// As new_group() for each of the lists, which have no rank in common; returns the owner of the sub-group that contains
/// this rank, or nullopt if no list contains it. Every rank of `group` must call it with the same lists. Reference:
/// torch.distributed.new_subgroups_by_enumeration().
std::optional<ProcessGroup> new_subgroups_by_enumeration(const GroupHandle& group,
                                                         std::vector<std::vector<int>> ranks_per_subgroup,
                                                         const NewGroupOptions& options = {});

/// The members' ranks in the job, in the order of their ranks in `group` (Python: get_process_group_ranks(), of which
/// element r is get_global_rank(group, r)). Any rank may call it; communicates nothing.
std::vector<int> get_process_group_ranks(const GroupHandle& group);

/// True on rank 0, the one that prints, logs and writes files.
inline bool is_main_process(const GroupHandle& group) {
  return group.rank() == 0;
}

/// On rank 0, formats the parts with `<<` and writes them and a newline to standard output in one write. On other ranks
/// it does nothing, and does not format them. Any rank may call it.
template <typename... Parts>
void print_on_main(const GroupHandle& group, const Parts&... parts) {
  if (!is_main_process(group)) return;
  std::ostringstream line;
  (line << ... << parts) << '\n';
  const std::string text = line.str();
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

}  // namespace ddp
