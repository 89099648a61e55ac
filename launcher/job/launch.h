// ddprun from its arguments to its exit status.
#pragma once

#include <span>
#include <string>

#include "launcher/os/system/process_title.h"

namespace launcher {

// `arguments` without argv[0]; `title` is this process's. Never throws.
int launch(std::span<const std::string> arguments, ProcessTitle& title) noexcept;

}  // namespace launcher
