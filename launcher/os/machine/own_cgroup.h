// The cgroups in which ddprun itself runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace launcher {

// The folder of the v2 one; nothing where no cgroup2 file system is mounted that shows it.
std::optional<std::string> own_cgroup_folder();

// The same from the texts of /proc/self/cgroup and /proc/self/mountinfo; with `controller` ("cpu") the folder in the v1
// hierarchy of that controller. Pure.
std::optional<std::string> cgroup_folder(std::string_view cgroups, std::string_view mounts,
                                         std::string_view controller = {});

// True when the manager of the machine's cgroups has left this one to its user: it belongs to the calling user, who is
// not root, or systemd marked it as delegated. Root may write everywhere, which says nothing.
bool is_delegated(const std::string& folder);

}  // namespace launcher
