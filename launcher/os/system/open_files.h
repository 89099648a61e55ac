// The limit on open files (ulimit -n).
#pragma once

#include <sys/resource.h>

namespace launcher {

// Raises this process's limit to the hard limit, and returns the old one, which the children get back.
inline rlimit raise_open_files() {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

}  // namespace launcher
