// The limit on open files (ulimit -n).
#pragma once

#include <sys/resource.h>

namespace launcher {

// Raises this process's limit to the hard one, and returns what it was: the children get that back.
rlimit raise_open_files();

}  // namespace launcher
