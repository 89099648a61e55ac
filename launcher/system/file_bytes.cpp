#include "launcher/system/file_bytes.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/system/launch_error.h"
#include "launcher/system/unique_fd.h"

namespace launcher {

std::string file_bytes(const std::string& option, const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  std::string bytes;
  std::array<char, 4096> buffer;
  ssize_t count = file ? 1 : -1;
  while (count > 0) {
    count = ::read(file.get(), buffer.data(), buffer.size());
    if (count > 0) bytes.append(buffer.data(), static_cast<std::size_t>(count));
    if (count < 0 && errno == EINTR) count = 1;
  }
  if (count < 0) throw LaunchError(option + " " + path + ": " + std::strerror(errno));
  return bytes;
}

}  // namespace launcher
