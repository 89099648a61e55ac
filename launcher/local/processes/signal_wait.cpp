#include "launcher/local/processes/signal_wait.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

// The set of signals at `address` of the process; 0 when it cannot be read.
std::uint64_t signal_set_at(pid_t pid, std::uint64_t address) {
  const UniqueFd memory(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  std::uint64_t set = 0;
  if (!memory || ::pread(memory.get(), &set, sizeof set, static_cast<off_t>(address)) != sizeof set) return 0;
  return set;
}

}  // namespace

bool is_in_sigwait(pid_t pid, int signal_number) {
  std::error_code error;
  std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", error);
  for (const std::filesystem::directory_iterator end; !error && threads != end; threads.increment(error)) {
    std::ifstream file(threads->path() / "syscall");
    long number = -1;
    std::uint64_t address = 0;
    if (!(file >> number >> std::hex >> address) || number != SYS_rt_sigtimedwait) continue;
    if ((signal_set_at(pid, address) & std::uint64_t{1} << (signal_number - 1)) != 0) return true;
  }
  return false;
}

}  // namespace launcher
