// The texts of `ddprun status --help`, `ddprun top --help` and `ddprun timeline --help`.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace launcher {

// Nothing where the arguments are no such question.
std::optional<std::string> help_of_words(std::span<const std::string> arguments);

}  // namespace launcher
