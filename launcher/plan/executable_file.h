// Why the kernel will not execute a file, from the file's own bytes: execve() gives a number only.
#pragma once

#include <string>

namespace launcher {

// "" where nothing speaks against the file. Otherwise what is wrong and what to do: a missing interpreter, a carriage
// return behind its name, a program for another kind of processor, a missing loader. `file` as seen from here.
std::string why_not_executed(const std::string& file);

// Why access(file, X_OK) fails though the file is there: no permission, or a file system mounted with noexec.
std::string why_no_permission(const std::string& file);

}  // namespace launcher
