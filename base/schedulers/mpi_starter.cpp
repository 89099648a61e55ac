#include "base/schedulers/mpi_starter.h"

#include <sys/socket.h>

#include <charconv>

namespace ddp::detail {
namespace {

// The process that made the other end of a socket that was inherited: for MPICH's PMI_FD the starter on this machine.
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

}  // namespace

std::optional<std::string> mpi_starter(const VariableLookup& lookup) {
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_PORT"}) {
    if (const auto value = lookup(name); value && !value->empty()) return *value;
  }
  const auto descriptor = lookup("PMI_FD");
  return descriptor ? socket_or_pipe_process(*descriptor) : std::nullopt;
}

}  // namespace ddp::detail
