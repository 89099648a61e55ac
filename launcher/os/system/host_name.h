// This machine's name, for messages.
#pragma once

#include <string>

namespace launcher {

std::string host_name();

}  // namespace launcher
