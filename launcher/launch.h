// ddprun from its arguments to its exit status.
#pragma once

#include <span>
#include <string>

namespace launcher {

// `arguments` without argv[0]. Never throws.
int launch(std::span<const std::string> arguments) noexcept;

}  // namespace launcher
