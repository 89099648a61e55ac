// Files that hold the ranks' output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

// Makes `folder` and those above it. Throws LaunchError that begins with `option`, where its name comes from.
void make_folder(const std::string& folder, const std::string& option);

// A new folder <parent>/<name>_<random>; `parent` exists. Throws LaunchError that begins with `option`.
std::string make_unique_folder(const std::string& parent, const std::string& name, const std::string& option);

// Opened for writing at its end, so that a rank and its children do not overwrite each other; emptied unless `keep`.
// Throws LaunchError.
UniqueFd open_log_file(const std::string& path, bool keep);

// 0, or why no file of a few KiB can be written in `folder`: ENOSPC, EDQUOT or EFBIG (ulimit -f). Writes and removes a
// small file.
int no_space_error(const std::string& folder);

// The same by asking the file system only: it does not know of quotas.
bool is_disk_full(const std::string& folder);

class LogFile {
 public:
  LogFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  // After the first failure nothing is written any more.
  void write(std::string_view bytes);
  // errno of the write that failed, else 0.
  int error() const { return error_; }
  const std::string& path() const { return path_; }
  UniqueFd& descriptor() { return fd_; }  // to be moved elsewhere for a while

 private:
  std::string path_;
  UniqueFd fd_;
  int error_ = 0;
};

// Copies lines that hold one of several texts to a file.
class LineFilter {
 public:
  LineFilter(std::vector<std::string> texts, LogFile file) : texts_(std::move(texts)), file_(std::move(file)) {}

  // `lines`: whole lines, the last one perhaps without its newline.
  void add(std::string_view lines);
  const LogFile& file() const { return file_; }

 private:
  std::vector<std::string> texts_;
  LogFile file_;
};

}  // namespace launcher
