// What --node_timeout is where nobody says it.
#pragma once

#include <chrono>

namespace launcher {

// How long the network may be interrupted without an end of the job: longer than a switch, a bond or a virtual machine
// that is moved takes to come back. A launcher that ends is noticed at once nevertheless.
inline constexpr std::chrono::milliseconds kNodeTimeout{10'000};

}  // namespace launcher
