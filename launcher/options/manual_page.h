// The manual page ddprun(1).
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace launcher {

// In troff's man macros: ASCII, the same bytes for the same options, with no date.
std::string manual_page(const CLI::App& app);

}  // namespace launcher
