// The texts of --help.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace launcher {

class OptionTable;

// The options group by group, in the order of their declaration, each with its default and its variable.
std::string help_text(const OptionTable& table);

// The text for `ddprun status --help`, `ddprun top --help` and `ddprun timeline --help`; nothing for other arguments.
std::optional<std::string> help_of_words(std::span<const std::string> arguments);

}  // namespace launcher
