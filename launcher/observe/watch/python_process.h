// The Python functions in which a process of this user is.
#pragma once

#include <sys/types.h>

#include <map>
#include <string_view>
#include <vector>

#include "launcher/observe/watch/python_frames.h"

namespace launcher {

// Returns the frames by thread, innermost first; the main thread has the process's number. Empty if the process does
// not run a known version of CPython, or if the kernel does not permit reading its memory. The process is not affected.
std::map<std::int64_t, std::vector<PythonFrame>> python_stacks(pid_t pid);

// Returns the 11 in "libpython3.11.so.1.0" and "python3.11"; 0 for other names. Pure.
int python_minor(std::string_view file_name);

}  // namespace launcher
