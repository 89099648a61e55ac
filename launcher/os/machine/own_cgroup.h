// The cgroups in which ddprun itself runs.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace launcher {

// The folder of the v2 cgroup; nothing if it is not visible in a mounted cgroup2 file system.
std::optional<std::string> own_cgroup_folder();

// The same from the texts of /proc/self/cgroup and /proc/self/mountinfo. With `controller` ("cpu") it is the folder in
// the v1 hierarchy of that controller. Pure.
std::optional<std::string> cgroup_folder(std::string_view cgroups, std::string_view mounts,
                                         std::string_view controller = {});

// True when this cgroup is delegated to the user: it belongs to the calling user, who is not root, or systemd marked it
// as delegated. For root, write access proves nothing.
bool is_delegated(const std::string& folder);

}  // namespace launcher
