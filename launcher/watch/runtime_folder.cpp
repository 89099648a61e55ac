#include "launcher/watch/runtime_folder.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>

namespace launcher {
namespace {

constexpr const char* kEnding = ".sock";
// "/", the digits of a process's number, the ending and a zero.
constexpr std::size_t kLongestFolder = sizeof(sockaddr_un::sun_path) - 1 - 10 - 5 - 1;

}  // namespace

std::string runtime_folder(const char* xdg_runtime_dir, uid_t user) {
  const std::string folder = xdg_runtime_dir != nullptr ? std::string(xdg_runtime_dir) + "/ddprun" : "";
  if (folder.starts_with('/') && folder.size() <= kLongestFolder) return folder;
  return "/tmp/ddprun-" + std::to_string(user);
}

std::string runtime_folder() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  // sudo may leave another user's.
  const bool is_own = folder != nullptr && ::stat(folder, &status) == 0 && status.st_uid == ::geteuid();
  return runtime_folder(is_own ? folder : nullptr, ::geteuid());
}

bool make_runtime_folder(const std::string& folder) {
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat status {};
  // Somebody else may have made it in /tmp.
  return ::lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == ::geteuid() &&
         (status.st_mode & 0077) == 0;
}

std::string socket_in(const std::string& folder, pid_t pid) {
  return folder + "/" + std::to_string(pid) + kEnding;
}

UniqueFd connect_to(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path) return {};
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd) return {};
  const timeval patience{.tv_sec = 5, .tv_usec = 0};
  ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  ::setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

std::vector<std::string> living_sockets(const std::string& folder) {
  std::vector<std::string> sockets;
  if (!make_runtime_folder(folder)) return sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (!path.ends_with(kEnding)) continue;
    if (connect_to(path)) {
      sockets.push_back(path);
    } else if (errno == ECONNREFUSED) {
      ::unlink(path.c_str());
    }
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace launcher
