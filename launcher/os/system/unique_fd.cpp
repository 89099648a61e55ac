#include "launcher/os/system/unique_fd.h"

#include <fcntl.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>

#include "launcher/os/system/launch_error.h"

namespace launcher {

Pipe make_pipe(int flags) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC | flags) != 0) {
    throw LaunchError(std::string("cannot create a pipe: ") + std::strerror(errno) +
                      (errno == EMFILE ? " (limit on open files: ulimit -n)" : ""));
  }
  return {UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace launcher
