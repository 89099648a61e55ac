#include "launcher/observe/timeline/own_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace launcher {

std::string whole_path(const std::string& file) {
  std::error_code error;
  const auto path = std::filesystem::absolute(file);
  const auto whole = std::filesystem::weakly_canonical(path, error);
  return error ? path.lexically_normal().string() : whole.string();
}

std::string file_of_node(const std::string& file, int node, int restart) {
  std::filesystem::path path = file;
  const std::string extension = path.extension().string();
  const std::string place =
      ".node" + std::to_string(node) + (restart > 0 ? ".restart" + std::to_string(restart) : std::string());
  return path.replace_extension(place + (extension.empty() ? ".json" : extension)).string();
}

bool OwnFiles::has(const std::string& file) const {
  struct stat status {};
  if (::stat(file.c_str(), &status) != 0 || status.st_size == 0) return false;
  const ddp::detail::TraceFile::Identity identity(status.st_dev, status.st_ino);
  return std::find(files_.begin(), files_.end(), identity) != files_.end();
}

}  // namespace launcher
