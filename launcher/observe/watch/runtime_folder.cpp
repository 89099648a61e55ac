#include "launcher/observe/watch/runtime_folder.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>
#include <sstream>
#include <system_error>
#include <utility>

namespace launcher {
namespace {

constexpr const char* kEnding = ".sock";
constexpr const char* kNotListeningSuffix = ".new";  // the ending of a socket that does not listen yet
// "/", the digits of a process's number, the ending and a zero.
constexpr std::size_t kMaxFolderLength = sizeof(sockaddr_un::sun_path) - 1 - 10 - 5 - 1;

// Returns nothing when the name is too long.
std::optional<sockaddr_un> address_of(const std::string& socket) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (socket.size() >= sizeof address.sun_path) return std::nullopt;
  std::memcpy(address.sun_path, socket.c_str(), socket.size() + 1);
  return address;
}

}  // namespace

std::string runtime_folder(const char* xdg_runtime_dir, uid_t user) {
  const std::string folder = xdg_runtime_dir != nullptr ? std::string(xdg_runtime_dir) + "/ddprun" : "";
  if (folder.starts_with('/') && folder.size() <= kMaxFolderLength) return folder;
  return "/tmp/ddprun-" + std::to_string(user);
}

std::string runtime_folder() {
  const char* folder = std::getenv("XDG_RUNTIME_DIR");
  struct stat status {};
  // sudo may leave the variable of another user.
  const bool is_own = folder != nullptr && ::stat(folder, &status) == 0 && status.st_uid == ::geteuid();
  return runtime_folder(is_own ? folder : nullptr, ::geteuid());
}

std::string make_runtime_folder(const std::string& folder) {
  constexpr const char* kOther = ", or set XDG_RUNTIME_DIR to a folder of yours";
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return folder + " cannot be created: " + std::strerror(errno) + "; set XDG_RUNTIME_DIR to a folder of yours";
  }
  struct stat status {};
  // In /tmp another user may have made the folder.
  if (::lstat(folder.c_str(), &status) != 0) return folder + " cannot be examined: " + std::strerror(errno);
  if (status.st_uid != ::geteuid()) {
    return folder + " belongs to another user, whose user ID is " + std::to_string(status.st_uid) +
           ": have it removed" + kOther;
  }
  if (!S_ISDIR(status.st_mode)) return folder + " is not a folder but a file or a link: remove it" + kOther;
  if ((status.st_mode & 0077) == 0) return "";
  std::array<char, 8> mode{};
  std::snprintf(mode.data(), mode.size(), "%03o", static_cast<unsigned>(status.st_mode & 0777));
  return "other users can access " + folder + ", whose mode is " + mode.data() + ": chmod 700 " + folder + kOther;
}

UniqueFd connect_to(const std::string& socket) {
  const auto address = address_of(socket);
  if (!address) return {};
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return {};
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) != 0) {
    const int error = errno;
    fd.reset();
    errno = error;
  }
  return fd;
}

ListeningSocket listen_in(const std::string& folder, pid_t pid) {
  constexpr int kBacklog = 16;
  constexpr int kMaxTries = 9;
  if (std::string problem = make_runtime_folder(folder); !problem.empty()) return {.problem = std::move(problem)};
  const std::string begin = folder + "/" + std::to_string(pid);
  const std::string early = begin + kNotListeningSuffix;
  ListeningSocket result{.fd = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0))};
  const auto address = address_of(early);
  ::unlink(early.c_str());
  // The umask is set first, so that other users can open the socket at no moment.
  const mode_t mask = ::umask(0177);
  const bool is_bound = result.fd && address &&
                        ::bind(result.fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof *address) == 0;
  ::umask(mask);
  if (is_bound && ::listen(result.fd.get(), kBacklog) == 0) {
    // Another container that shares the folder may have a ddprun with the same process number.
    for (int i = 1; i <= kMaxTries && result.path.empty(); ++i) {
      std::string path = begin;
      if (i > 1) path.append("-").append(std::to_string(i));
      path += kEnding;
      if (::link(early.c_str(), path.c_str()) == 0) {
        result.path = path;
      } else if (errno != EEXIST) {  // some file systems have no links
        if (::rename(early.c_str(), path.c_str()) == 0) result.path = path;
        break;
      }
    }
  }
  const int error = errno;
  if (is_bound) ::unlink(early.c_str());
  if (!result.path.empty()) return result;
  return {.problem = "cannot create a socket in " + folder + ": " + std::strerror(error)};
}

std::vector<std::string> live_sockets(const std::string& folder) {
  std::vector<std::string> sockets;
  if (!make_runtime_folder(folder).empty()) return sockets;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string path = entry.path().string();
    if (path.ends_with(kNotListeningSuffix)) {
      const int pid = std::atoi(entry.path().filename().c_str());
      if (pid > 0 && ::kill(pid, 0) != 0 && errno == ESRCH) ::unlink(path.c_str());
    }
    if (!path.ends_with(kEnding)) continue;
    if (connect_to(path) || errno == EAGAIN) {
      sockets.push_back(path);
    } else if (errno == ECONNREFUSED) {
      ::unlink(path.c_str());
    }
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

std::vector<std::string> listening_folders(const std::string& unix_sockets) {
  std::set<std::string> folders;
  std::istringstream lines(unix_sockets);
  for (std::string line; std::getline(lines, line);) {
    // The kernel lists a socket under the name that it was bound to, which has the early ending.
    const std::size_t begin = line.find('/');
    const std::size_t end = line.rfind('/');
    if (begin == std::string::npos || end == begin) continue;
    const std::string name = line.substr(end + 1);
    const std::string folder = line.substr(begin, end - begin);
    const bool is_socket = name.ends_with(kNotListeningSuffix) || name.ends_with(kEnding);
    const bool is_number = std::isdigit(static_cast<unsigned char>(name.front())) != 0;
    if (is_socket && is_number && folder.substr(folder.rfind('/') + 1).starts_with("ddprun")) folders.insert(folder);
  }
  return {folders.begin(), folders.end()};
}

std::vector<std::string> others_sockets(const std::string& folder) {
  std::vector<std::string> sockets;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string path = entry->path().string();
    if (path.ends_with(kEnding) && entry->is_socket(error)) sockets.push_back(path);
    error.clear();
  }
  std::sort(sockets.begin(), sockets.end());
  return sockets;
}

}  // namespace launcher
