#include "launcher/local/output/log_file.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "launcher/os/system/launch_error.h"

namespace launcher {

void make_folder(const std::string& folder, const std::string& option) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error)
    throw LaunchError(option + ": cannot create the folder " + folder + ": " + error.message() +
                      "; choose a folder in which you can write");
}

std::string make_unique_folder(const std::string& parent, const std::string& name, const std::string& option) {
  std::string path = parent + "/";
  for (const char c : name) path.push_back(c == '/' ? '_' : c);
  path += "_XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) {
    throw LaunchError(option + ": cannot create a folder in " + parent + ": " + std::strerror(errno));
  }
  return path;
}

UniqueFd open_log_file(const std::string& path, bool keep) {
  UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | (keep ? 0 : O_TRUNC), 0666));
  if (!fd) {
    throw LaunchError("cannot write the log file " + path + ": " + error_text(errno));
  }
  return fd;
}

int no_space_error(const std::string& folder) {
  std::string path = folder + "/.space_XXXXXX";
  const UniqueFd file(::mkostemp(path.data(), O_CLOEXEC));
  if (!file) return errno == ENOSPC || errno == EDQUOT ? errno : 0;
  ::unlink(path.c_str());
  const std::array<char, 4096> bytes{};
  // write() may stop in the middle when the disk is full or a file may not grow any more. Only the next write() returns
  // the error.
  for (std::size_t done = 0; done < bytes.size();) {
    const ssize_t count = ::write(file.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno == ENOSPC || errno == EDQUOT || errno == EFBIG ? errno : 0;
    done += static_cast<std::size_t>(count);
  }
  return 0;
}

bool is_disk_full(const std::string& folder) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0 || status.f_blocks == 0) return false;
  return (::geteuid() == 0 ? status.f_bfree : status.f_bavail) == 0;
}

void LogFile::write(std::string_view bytes) {
  while (!bytes.empty() && error_ == 0) {
    const ssize_t count = ::write(fd_.get(), bytes.data(), bytes.size());
    if (count >= 0) {
      bytes.remove_prefix(static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      error_ = errno;
    }
  }
}

void LineFilter::add(std::string_view lines) {
  while (!lines.empty()) {
    const std::size_t newline = lines.find('\n');
    const std::string_view line = lines.substr(0, newline == std::string_view::npos ? newline : newline + 1);
    lines.remove_prefix(line.size());
    const bool is_wanted = std::any_of(texts_.begin(), texts_.end(), [&](const std::string& text) {
      return line.find(text) != std::string_view::npos;
    });
    if (!is_wanted) continue;
    file_.write(line);
    if (line.back() != '\n') file_.write("\n");
  }
}

}  // namespace launcher
