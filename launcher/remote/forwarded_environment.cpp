#include "launcher/remote/forwarded_environment.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

namespace launcher::remote {
namespace {

constexpr std::array<std::string_view, 17> kNames = {
    "HOME",   "USER",    "LOGNAME",  "SHELL",           "MAIL",       "HOSTNAME",   "HOST",    "OLDPWD", "SHLVL",
    "TMPDIR", "DISPLAY", "WINDOWID", "WAYLAND_DISPLAY", "XAUTHORITY", "KRB5CCNAME", "GPG_TTY", "_"};
constexpr std::array<std::string_view, 5> kBeginnings = {"SSH_", "XDG_", "DBUS_", "SUDO_", "SYSTEMD_"};

std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

}  // namespace

bool belongs_to_machine(std::string_view name) {
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end() ||
         std::any_of(kBeginnings.begin(), kBeginnings.end(),
                     [name](std::string_view beginning) { return name.starts_with(beginning); });
}

std::vector<std::string> forwarded_environment(std::span<const std::string> own,
                                               std::span<const std::string> exported) {
  std::vector<std::string> entries;
  for (const std::string& entry : own) {
    const bool is_exported = std::any_of(exported.begin(), exported.end(),
                                         [&](const std::string& other) { return name_of(other) == name_of(entry); });
    if (is_exported || !belongs_to_machine(name_of(entry))) entries.push_back(entry);
  }
  return entries;
}

std::vector<std::string> merged_environment(std::span<const std::string> of_host, std::vector<std::string> forwarded) {
  std::set<std::string, std::less<>> names;
  for (const std::string& entry : forwarded) names.emplace(name_of(entry));
  for (const std::string& entry : of_host) {
    if (!names.contains(name_of(entry))) forwarded.push_back(entry);
  }
  return forwarded;
}

}  // namespace launcher::remote
