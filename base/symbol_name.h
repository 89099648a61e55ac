// Makes function names in stack traces readable: demangles C++ symbols, and omits the template arguments of long names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace ddp::detail {

// Demangles a symbol without its parameters, and with "<...>" for each list of template arguments, such as
// "at::native::add<...>(...)". It is needed because the demangler of libstdc++ rejects symbols of more than 1024 bytes.
// Returns "" if the text is not a C++ symbol. Pure.
std::string outline_of_symbol(std::string_view symbol);

// Demangles a symbol of a program or library, such as "train_step(Net&, Batch const&)". The symbol may end with '@' and
// a version. Text that is not a C++ symbol is returned unchanged. Results longer than `most` bytes are truncated and
// end with "...".
std::string symbol_name(std::string_view symbol, std::size_t most);

// Shortens a demangled name to at most `most` bytes if necessary: first drops the template arguments, then the
// parameters, then truncates it. Pure.
std::string shortened_name(std::string_view name, std::size_t most);

}  // namespace ddp::detail
