#include "launcher/os/system/file_bytes.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

constexpr int kReadTimeout = 10'000;  // ms

}  // namespace

std::string file_bytes(const std::string& option, const std::string& path, std::size_t most) {
  const auto fail = [&](const std::string& why) { throw LaunchError(option + " " + path + ": " + why); };
  // Non-blocking, so that opening a named pipe does not wait for a writer.
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!file) fail(std::strerror(errno));
  std::string bytes;
  std::array<char, 4096> buffer;
  while (true) {
    const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
    if (count == 0) return bytes;
    if (count > 0) {
      bytes.append(buffer.data(), static_cast<std::size_t>(count));
      if (bytes.size() > most) fail("it has more than " + std::to_string(most) + " bytes");
    } else if (errno == EAGAIN) {
      pollfd readable{file.get(), POLLIN, 0};
      if (::poll(&readable, 1, kReadTimeout) == 0) fail("reading it took more than 10 s");
    } else if (errno != EINTR) {
      fail(std::strerror(errno));
    }
  }
}

}  // namespace launcher
