// Which variables of the ddprun that the user started the other hosts get. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace launcher::remote {

// It says something of one machine, or of the user's session there: HOME, HOSTNAME, TMPDIR, SSH_*, XDG_* ...
bool belongs_to_machine(std::string_view name);

// All entries "NAME=value" but those; a variable that `exported` (of -x) names travels whatever it is.
std::vector<std::string> forwarded_environment(std::span<const std::string> own, std::span<const std::string> exported);

// What a process on another host gets: what was forwarded, and of the host's own variables those that did not.
std::vector<std::string> merged_environment(std::span<const std::string> of_host, std::vector<std::string> forwarded);

}  // namespace launcher::remote
