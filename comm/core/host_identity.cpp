#include "comm/core/host_identity.h"

#include <limits.h>
#include <unistd.h>

#include <fstream>

namespace ddp::detail {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// Identifies this boot of the host. If the kernel gives no boot id, it is the host's name: several hosts may have
// the same name, but then attaching fails.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  return std::getline(file, id) ? id : host_name();
}

std::string process_namespace() {
  char target[64] = {};
  return readlink("/proc/self/ns/pid", target, sizeof target - 1) > 0 ? target : "";
}

}  // namespace

std::string host_identity(const EnvironmentLookup& lookup) {
  return boot_id() + " " + process_namespace() + " " + lookup("DDPRUN_SHM_HOST").value_or("");
}

}  // namespace ddp::detail
