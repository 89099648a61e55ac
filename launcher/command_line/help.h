// The text of --help.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace launcher {

// The options of `app` group by group, in the order of their declaration, each with its default and its variable.
std::string help_text(const CLI::App& app);

}  // namespace launcher
