// Runs ddprun from its arguments to its exit status.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/os/system/process_title.h"

namespace launcher {

// `arguments` are without argv[0], `title` is the title of this process, `commit` is the source revision that --version
// prints. Never throws.
int launch(std::span<const std::string> arguments, ProcessTitle& title, std::string_view commit) noexcept;

}  // namespace launcher
