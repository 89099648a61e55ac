// Which rank this process is in its job, read from the variables that launchers set. No LibTorch here.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// Looks up an environment variable; nullopt when it is unset.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// One process's place in the job, in the terms of torchrun's environment.
struct RankInfo {
  int rank = 0;               ///< RANK: 0 … world_size-1 over all nodes
  int world_size = 1;         ///< WORLD_SIZE: number of processes in the job
  int local_rank = 0;         ///< LOCAL_RANK: 0 … local_world_size-1 on this node
  int local_world_size = 1;   ///< LOCAL_WORLD_SIZE: number of processes on this node
  std::string master_addr{};  ///< MASTER_ADDR: host of the store; empty for a single process
  uint16_t master_port = 0;   ///< MASTER_PORT: TCP port of the store
  /// TORCHELASTIC_USE_AGENT_STORE is exactly "True": the launcher hosts the store, so rank 0 connects to it like any
  /// other.
  bool agent_store = false;
  /// TORCHELASTIC_RESTART_COUNT, under srun SLURM_RESTART_COUNT: how often the group has been restarted.
  int restart_count = 0;
  /// Where this comes from: "torchrun" (RANK …), "Open MPI", "MPICH", "LSF", "Slurm", or "single process" when there
  /// are none.
  std::string source = "single process";
  /// In a sub-group: this rank's name in the group it was made from, such as "rank 3 of 4". Empty in the job's group.
  std::string parent{};
};

/// "rank 1 of 2", or "rank 1 of 2 in a sub-group (rank 3 of 4)": the beginning of error messages.
std::string who(const RankInfo& info);

/// The calling process's environment.
EnvironmentLookup process_environment();

/// Reads torchrun's variables, else those of Open MPI, MPICH, jsrun or srun; without any of them a single process of
/// world size 1 that needs no network. Where MASTER_ADDR and MASTER_PORT are not set, srun's tasks meet on the first
/// host of their step, ranks that mpirun or jsrun started on one host on loopback, at a port made of the job's number.
/// Throws std::invalid_argument, naming the variable, its value and what to do, when one is missing, is not a number,
/// or contradicts another (RANK ≥ WORLD_SIZE, LOCAL_RANK ≥ LOCAL_WORLD_SIZE, MASTER_PORT out of range).
RankInfo rank_info_from_environment(const EnvironmentLookup& lookup = process_environment());

/// Knows which rank this is, of how many: ProcessGroup, GroupHandle, horovod's Context, or a class of your own.
template <typename Group>
concept RankedGroup = requires(const Group& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.size() } -> std::convertible_to<int>;
};

}  // namespace ddp
