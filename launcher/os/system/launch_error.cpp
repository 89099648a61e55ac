#include "launcher/os/system/launch_error.h"

#include <cerrno>
#include <cstring>

namespace launcher {

std::string error_text(int error) {
  const std::string text = std::strerror(error);
  switch (error) {
    case EFBIG:
      return text + " (limit on the size of files: ulimit -f)";
    case EMFILE:
      return text + " (limit on open files: ulimit -n)";
    case ENFILE:
      return text + " (limit of the whole machine: /proc/sys/fs/file-max)";
    case ENOMEM:
      return text + " (limit on memory: ulimit -v, or the container's)";
    default:
      return text;
  }
}

std::string fork_error_text(int error) {
  if (error != EAGAIN) return error_text(error);
  return std::string(std::strerror(error)) + " (limit on processes: ulimit -u, or pids.max of the container)";
}

}  // namespace launcher
