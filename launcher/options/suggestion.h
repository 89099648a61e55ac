// Which option a mistyped one was meant to be. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace launcher {

// The name nearest to `mistyped` (a typing error or two away, or the beginning of a name); "" when none is near.
std::string nearest_name(std::string_view mistyped, std::span<const std::string> names);

}  // namespace launcher
