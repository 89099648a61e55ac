// Why the kernel refuses to execute a file, found in the file's own bytes: execve() returns only a number.
#pragma once

#include <string>
#include <string_view>

namespace launcher {

// Returns "" if no reason is found. Otherwise the reason and what to do: a missing interpreter, a carriage return after
// its name, a program for another kind of processor, a missing loader. `file` is the path as this process sees it.
std::string why_not_executed(const std::string& file);

// Why access(file, X_OK) fails for an existing file: no permission, or a file system that is mounted with noexec.
std::string why_no_permission(const std::string& file);

// What to do with a file whose extension shows that it is a source or a notebook; "" for others. Pure.
std::string why_no_program(std::string_view file);

}  // namespace launcher
