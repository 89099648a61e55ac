// The name of a C++ function out of its symbol, where that is too long for a demangler.
#pragma once

#include <string>
#include <string_view>

namespace ddp::detail {

// Without parameters, and "<...>" for each list of template arguments: "at::native::add<...>(...)". libstdc++'s own
// demangler takes no symbol of more than 1024 bytes. "" where it is no such symbol. Pure.
std::string outline_of_symbol(std::string_view symbol);

}  // namespace ddp::detail
