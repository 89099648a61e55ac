// Why the kernel will not execute a file, from the file's own bytes: execve() gives a number only.
#pragma once

#include <string>
#include <string_view>

namespace launcher {

// "" where nothing speaks against the file. Otherwise what is wrong and what to do: a missing interpreter, a carriage
// return after its name, a program for another kind of processor, a missing loader. `file` as seen from here.
std::string why_not_executed(const std::string& file);

// Why access(file, X_OK) fails though the file is there: no permission, or a file system mounted with noexec.
std::string why_no_permission(const std::string& file);

// What to do instead with a file whose ending says that it is a source or a notebook; "" for others. Pure.
std::string why_no_program(std::string_view file);

}  // namespace launcher
