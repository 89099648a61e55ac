#include "base/schedulers/master_address.h"

#include <sys/socket.h>

#include <charconv>
#include <optional>

#include "base/schedulers/lsf_hosts.h"
#include "base/schedulers/slurm_step.h"

namespace ddp::detail {
namespace {

// The process at the other end of an inherited socket. For MPICH's PMI_FD this is the process manager on this machine.
std::optional<std::string> socket_or_pipe_process(const std::string& descriptor) {
  int fd = -1;
  const char* end = descriptor.data() + descriptor.size();
  const auto [stop, error] = std::from_chars(descriptor.data(), end, fd);
  if (error != std::errc{} || stop != end || fd < 0) return std::nullopt;
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid <= 0) return std::nullopt;
  return "process " + std::to_string(peer.pid);
}

/// Identifies the MPI job: by its name in Open MPI and PMIx, otherwise by the address or the process of MPICH's process
/// manager. Returns nullopt if none of them is available.
std::optional<std::string> mpi_starter(const VariableLookup& lookup) {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_PORT"}) {
    if (const auto value = lookup(name); value && !value->empty()) return *value;
  }
  const auto descriptor = lookup("PMI_FD");
  return descriptor ? socket_or_pipe_process(*descriptor) : std::nullopt;
}

constexpr const char* kLoopback = "127.0.0.1";

MasterAddress of_slurm(const VariableLookup& lookup) {
  const auto step = slurm_step(lookup);
  if (!step) return {.advice = " Slurm's tasks are started by srun, which did not start this process."};
  return {.host = step->nodes == 1 ? kLoopback : step->first_host, .port = step->port};
}

// Explains how mpirun passes a variable to all ranks.
std::string advice_for(const std::string& launcher) {
  const bool is_open_mpi = launcher == "Open MPI";
  return std::string(" To pass them to all ranks with mpirun: ") +
         (is_open_mpi ? "-x MASTER_ADDR=HOST -x MASTER_PORT=PORT." : "-genv MASTER_ADDR HOST -genv MASTER_PORT PORT.");
}

MasterAddress of_mpi(const VariableLookup& lookup, const std::string& launcher, bool is_one_host) {
  if (!is_one_host) return {.advice = advice_for(launcher)};
  const auto starter = mpi_starter(lookup);
  if (!starter) return {.host = kLoopback, .advice = advice_for(launcher)};
  return {.host = kLoopback, .port = port_of_job(*starter)};
}

// Skips the first host of the list: the job script runs there, and the host is not used for computing.
MasterAddress of_jsrun(const VariableLookup& lookup, bool is_one_host) {
  MasterAddress point{.host = is_one_host ? kLoopback : ""};
  const auto list = lookup("LSB_MCPU_HOSTS");
  if (!is_one_host && list) {
    const std::vector<std::string> hosts = lsf_hosts(*list);
    if (hosts.size() > 1) point.host = hosts[1];
  }
  if (const auto job = lookup("LSB_JOBID"); job && !job->empty()) point.port = port_of_job(*job);
  point.advice = " To pass them to all ranks with jsrun: -E MASTER_ADDR=HOST -E MASTER_PORT=PORT.";
  return point;
}

}  // namespace

MasterAddress master_address(const VariableLookup& lookup, const std::string& launcher, int world_size,
                             int local_world_size) {
  const bool is_one_host = local_world_size == world_size;
  if (launcher == "Slurm") return of_slurm(lookup);
  if (launcher == "Open MPI" || launcher == "MPICH") return of_mpi(lookup, launcher, is_one_host);
  if (launcher == "LSF") return of_jsrun(lookup, is_one_host);
  return {};
}

}  // namespace ddp::detail
