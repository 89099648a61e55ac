#include "launcher/machine/own_cgroup.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace launcher {
namespace {

std::string text_of(const char* file) {
  std::ifstream stream(file);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

bool has_mark(const std::string& folder, const char* name) {
  char value = 0;
  return ::getxattr(folder.c_str(), name, &value, 1) == 1 && value == '1';
}

}  // namespace

std::optional<std::string> cgroup_folder(std::string_view cgroups, std::string_view mounts) {
  std::string group;
  std::istringstream lines{std::string(cgroups)};
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("0::/")) group = line.substr(3);
  }
  if (group.empty()) return std::nullopt;
  if (group == "/") group.clear();

  std::istringstream mount_lines{std::string(mounts)};
  for (std::string line; std::getline(mount_lines, line);) {
    // id parent device root point options... - type source options
    if (line.find(" - cgroup2 ") == std::string::npos) continue;
    std::istringstream fields(line);
    std::string ignored;
    std::string root;
    std::string point;
    fields >> ignored >> ignored >> ignored >> root >> point;
    if (root == "/") return point + group;
    if (group == root || group.starts_with(root + "/")) return point + group.substr(root.size());
  }
  return std::nullopt;
}

std::optional<std::string> own_cgroup_folder() {
  return cgroup_folder(text_of("/proc/self/cgroup"), text_of("/proc/self/mountinfo"));
}

bool is_delegated(const std::string& folder) {
  if (has_mark(folder, "user.delegate") || has_mark(folder, "trusted.delegate")) return true;
  struct stat status {};
  return ::geteuid() != 0 && ::stat(folder.c_str(), &status) == 0 && status.st_uid == ::geteuid();
}

}  // namespace launcher
