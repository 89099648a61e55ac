// The text of --help.
#pragma once

#include <cstddef>
#include <string>

namespace CLI {
class App;
}

namespace launcher {

inline constexpr std::size_t kHelpWidth = 80;  // columns, of the texts of subcommands too

// The options of `app` group by group, in the order of their declaration, each with its default and its variable.
std::string help_text(const CLI::App& app);

}  // namespace launcher
