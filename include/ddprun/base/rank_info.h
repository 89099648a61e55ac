// Which rank this process is in its job, read from the environment variables that launchers set. Does not use LibTorch.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace ddp {

/// Looks up an environment variable; nullopt when it is unset.
using EnvironmentLookup = std::function<std::optional<std::string>(const std::string& name)>;

/// The rank and the numbers of one process in its job, as in torchrun's environment variables.
struct RankInfo {
  int rank = 0;               ///< RANK: 0 … world_size-1 over all nodes
  int world_size = 1;         ///< WORLD_SIZE: number of processes in the job
  int local_rank = 0;         ///< LOCAL_RANK: 0 … local_world_size-1 on this node
  int local_world_size = 1;   ///< LOCAL_WORLD_SIZE: number of processes on this node
  std::string master_addr{};  ///< MASTER_ADDR: host of the store; empty for a single process
  uint16_t master_port = 0;   ///< MASTER_PORT: TCP port of the store
  /// Whether TORCHELASTIC_USE_AGENT_STORE is exactly "True". Then the launcher hosts the store, and rank 0 connects to
  /// it as every other rank does.
  bool agent_store = false;
  /// TORCHELASTIC_RESTART_COUNT, under srun SLURM_RESTART_COUNT: how often the group has been restarted.
  int restart_count = 0;
  /// Whose variables were read: "torchrun" (RANK …), "Open MPI", "MPICH", "LSF" or "Slurm"; "single process" when none
  /// of them are set.
  std::string source = "single process";
  /// In a sub-group: this rank's name in the group that the sub-group was made from, such as "rank 3 of 4". Empty in
  /// the job's group.
  std::string parent{};
};

/// "rank 1 of 2", or "rank 1 of 2 in a sub-group (rank 3 of 4)": the beginning of error messages.
std::string who(const RankInfo& info);

/// A lookup in the calling process's environment.
EnvironmentLookup process_environment();

/// Reads torchrun's variables, else those of Open MPI, MPICH, jsrun or srun. If none of them are set, the result is a
/// single process of world size 1 that needs no network. If MASTER_ADDR and MASTER_PORT are not set, the store's port
/// is computed from the job's number. Its host is the first host of the step for srun's tasks, and the loopback address
/// for ranks that mpirun or jsrun started on one host. Throws std::invalid_argument, naming the variable, its value and
/// what to do, when one is missing, is not a number, or contradicts another (RANK ≥ WORLD_SIZE, LOCAL_RANK ≥
/// LOCAL_WORLD_SIZE, MASTER_PORT out of range).
RankInfo rank_info_from_environment(const EnvironmentLookup& lookup = process_environment());

/// A type with rank() and size(): ProcessGroup, GroupHandle, horovod's Context, or a class of the program.
template <typename Group>
concept RankedGroup = requires(const Group& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.size() } -> std::convertible_to<int>;
};

}  // namespace ddp
