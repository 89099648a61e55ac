// Internal: what c10d's Reducer says in its errors and warnings, with this library's names for the options that it
// advises. Does not use LibTorch.
#pragma once

#include <string>

namespace ddp::detail {

/// `text` with options in C++ spelling in place of Python's: `DdpOptions::find_unused_parameters = true` for
/// `find_unused_parameters=True`, and so on. Texts without any are returned as they are.
std::string with_cpp_option_names(std::string text);

}  // namespace ddp::detail
