// How long a launcher waits for others without a word.
#pragma once

#include <chrono>

namespace launcher {

inline constexpr std::chrono::seconds kSilentWait{5};  // shorter waits need no explanation

}  // namespace launcher
