// Files that hold the ranks' output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/unique_fd.h"

namespace launcher {

// Makes `folder` and its parents. Throws LaunchError whose text begins with `option`, the option that named the folder.
void make_folder(const std::string& folder, const std::string& option);

// Makes a new folder <parent>/<name>_<random>; `parent` must exist. Throws LaunchError whose text begins with `option`.
std::string make_unique_folder(const std::string& parent, const std::string& name, const std::string& option);

// Opens the file for appending, so that a rank and its children do not overwrite each other's lines. Empties it first
// unless `keep` is true. Throws LaunchError.
UniqueFd open_log_file(const std::string& path, bool keep);

// Returns 0, or why no file of a few KiB can be written in `folder`: ENOSPC, EDQUOT or EFBIG (ulimit -f). Writes and
// removes a small file.
int no_space_error(const std::string& folder);

// Returns whether the file system of `folder` has no free block. It does not consider quotas.
bool is_disk_full(const std::string& folder);

class LogFile {
 public:
  LogFile(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}

  // Appends the bytes. After the first failure it writes nothing more.
  void write(std::string_view bytes);
  // errno of the write that failed, else 0.
  int error() const { return error_; }
  const std::string& path() const { return path_; }
  UniqueFd& descriptor() { return fd_; }  // ParkedDescriptors moves it to another number for a time

 private:
  std::string path_;
  UniqueFd fd_;
  int error_ = 0;
};

// Copies the lines that contain one of several texts to a file.
class LineFilter {
 public:
  LineFilter(std::vector<std::string> texts, LogFile file) : texts_(std::move(texts)), file_(std::move(file)) {}

  // `lines` are whole lines; only the last one may lack its newline.
  void add(std::string_view lines);
  const LogFile& file() const { return file_; }

 private:
  std::vector<std::string> texts_;
  LogFile file_;
};

}  // namespace launcher
