#include "launcher/os/machine/own_cgroup.h"

#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <charconv>
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

// `list` is separated by commas; an empty list contains the empty word.
bool has_word(std::string_view list, std::string_view word) {
  while (true) {
    const std::size_t comma = list.find(',');
    if (list.substr(0, comma) == word) return true;
    if (comma == std::string_view::npos) return false;
    list.remove_prefix(comma + 1);
  }
}

// mountinfo writes a blank as \040, and other characters in the same way.
std::string without_escapes(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned code = 0;
    const bool is_escape = text[i] == '\\' && i + 3 < text.size() &&
                           std::from_chars(&text[i + 1], &text[i + 1] + 3, code, 8).ptr == &text[i + 1] + 3;
    plain.push_back(is_escape ? static_cast<char>(code) : text[i]);
    if (is_escape) i += 3;
  }
  return plain;
}

}  // namespace

std::optional<std::string> cgroup_folder(std::string_view cgroups, std::string_view mounts,
                                         std::string_view controller) {
  std::string group;
  std::istringstream lines{std::string(cgroups)};
  for (std::string line; std::getline(lines, line);) {
    // The format is number:controllers:/path, for v2 0::/path.
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos || line.compare(second + 1, 1, "/") != 0) continue;
    if (has_word(std::string_view(line).substr(first + 1, second - first - 1), controller))
      group = line.substr(second + 1);
  }
  if (group.empty()) return std::nullopt;
  if (group == "/") group.clear();

  const std::string type = controller.empty() ? " - cgroup2 " : " - cgroup ";
  std::istringstream mount_lines{std::string(mounts)};
  for (std::string line; std::getline(mount_lines, line);) {
    // The format is: id parent device root point options... - type source options
    if (line.find(type) == std::string::npos) continue;
    if (!controller.empty() && !has_word(std::string_view(line).substr(line.rfind(' ') + 1), controller)) continue;
    std::istringstream fields(line);
    std::string ignored;
    std::string root;
    std::string point;
    fields >> ignored >> ignored >> ignored >> root >> point;
    root = without_escapes(root);
    point = without_escapes(point);
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
