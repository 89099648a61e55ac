// Completion of ddprun's options and of the program's own, as scripts for shells.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace launcher {

// Each offers options in the spelling of --help and knows the other one too, offers values where there is a choice and
// files or folders where one is meant, and behind the program what completes the program's own command line. The same
// options give the same bytes.
std::string bash_completion(const CLI::App& app);
std::string zsh_completion(const CLI::App& app);
std::string fish_completion(const CLI::App& app);

}  // namespace launcher
