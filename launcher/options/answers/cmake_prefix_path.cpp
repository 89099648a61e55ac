#include <charconv>
#include <string_view>
#include <system_error>

#include "launcher/options/answers/answers.h"

namespace launcher {
namespace {

namespace fs = std::filesystem;

bool is_there(const fs::path& path) {
  std::error_code unreadable;
  return fs::exists(path, unreadable);
}

// Searches the folders in which GNUInstallDirs puts libraries; in Debian's /usr there is one for each architecture.
bool has_package(const fs::path& prefix) {
  for (const char* libraries : {"lib", "lib64", "lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu"}) {
    if (is_there(prefix / libraries / "cmake/ddprun/ddprunConfig.cmake")) return true;
  }
  return false;
}

// Returns 11 for "python3.11"; -1 for other names.
int minor_version(std::string_view name) {
  constexpr std::string_view kPython = "python3.";
  int minor = -1;
  if (!name.starts_with(kPython)) return minor;
  name.remove_prefix(kPython.size());
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), minor);
  return error == std::errc() && end == name.data() + name.size() ? minor : -1;
}

fs::path newest_torch(const fs::path& prefix) {
  fs::path newest;
  int newest_minor = -1;
  for (const char* libraries : {"lib", "lib64"}) {
    std::error_code missing;
    for (const fs::directory_entry& entry : fs::directory_iterator(prefix / libraries, missing)) {
      const int minor = minor_version(entry.path().filename().string());
      if (minor <= newest_minor) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {  // Debian has dist-packages
        const fs::path torch = entry.path() / packages / "torch/share/cmake";
        if (!is_there(torch)) continue;
        newest = torch;
        newest_minor = minor;
      }
    }
  }
  return newest;
}

}  // namespace

CmakePrefixes find_cmake_prefixes(const fs::path& program) {
  const fs::path prefix = program.parent_path().parent_path();
  if (!has_package(prefix)) return {};
  return {prefix, newest_torch(prefix)};
}

std::string to_text(const CmakePrefixes& prefixes) {
  std::string text = prefixes.package.string();
  if (!prefixes.torch.empty()) text.append(";").append(prefixes.torch.string());
  return text.append("\n");
}

}  // namespace launcher
