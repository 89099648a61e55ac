// A name that no other job has.
#pragma once

#include <string>

namespace launcher {

// 32 hexadecimal digits. Throws LaunchError where the kernel has no random numbers.
std::string random_id();

}  // namespace launcher
