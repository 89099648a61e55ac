// The Python functions that a process of this user is in.
#pragma once

#include <sys/types.h>

#include <map>
#include <string_view>
#include <vector>

#include "launcher/observe/watch/python_frames.h"

namespace launcher {

// By thread, innermost first; the main thread has the process's number. Empty where the process runs no CPython of a
// version that is known, or the kernel does not let its memory be read. The process does not notice it.
std::map<std::int64_t, std::vector<PythonFrame>> python_stacks(pid_t pid);

// The 11 in "libpython3.11.so.1.0" and "python3.11"; 0 for other names. Pure.
int python_minor(std::string_view file_name);

}  // namespace launcher
