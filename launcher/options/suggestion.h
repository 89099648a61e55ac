// Finds the option that a mistyped name was probably meant to be. Pure.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace launcher {

// Returns the name nearest to `mistyped` (one or two typing errors away, or a beginning of a name); "" if there is
// none.
std::string nearest_name(std::string_view mistyped, std::span<const std::string> names);

}  // namespace launcher
