// The names of functions in stacks as people read them: C++'s symbols demangled, long ones without what is between
// their angle brackets.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::detail {

// Without parameters, and "<...>" for each list of template arguments: "at::native::add<...>(...)". libstdc++'s own
// demangler takes no symbol of more than 1024 bytes. "" where it is no such symbol. Pure.
std::string outline_of_symbol(std::string_view symbol);

// A symbol of a program's or a library's file, with a version after `@` perhaps: "train_step(Net&, Batch const&)".
// Text that is not a C++ symbol is unchanged; more than `most` bytes end with "...".
std::string symbol_name(std::string_view symbol, std::size_t most);

// A demangled name that has at most `most` bytes if need be: without template arguments, then without parameters, and
// then cut off. Pure.
std::string shortened_name(std::string_view name, std::size_t most);

}  // namespace ddp::detail
