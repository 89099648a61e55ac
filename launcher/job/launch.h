// ddprun from its arguments to its exit status.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "launcher/os/system/process_title.h"

namespace launcher {

// `arguments` without argv[0]; `title` is this process's; `commit` is what --version says of the sources. Never
// throws.
int launch(std::span<const std::string> arguments, ProcessTitle& title, std::string_view commit) noexcept;

}  // namespace launcher
