// The limit on open files (ulimit -n).
#pragma once

#include <sys/resource.h>

namespace launcher {

// Raises this process's limit to the hard one, and returns what it was: the children get that back.
inline rlimit raise_open_files() {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

}  // namespace launcher
