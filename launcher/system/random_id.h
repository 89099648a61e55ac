// A name that no other job has.
#pragma once

#include <string>

namespace launcher {

// 32 hexadecimal digits.
std::string random_id();

}  // namespace launcher
