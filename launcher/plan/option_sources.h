// Errors name options; a user who has set a variable instead looks for its name. Pure.
#pragma once

#include <map>
#include <string>

namespace launcher {

// For an error that names options: " (--nnodes is from PET_NNODES)", after Options::variables; "" where it names none
// of them.
std::string option_sources(const std::string& error, const std::map<std::string, std::string>& variables);

}  // namespace launcher
