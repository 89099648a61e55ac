#include "launcher/os/system/open_files.h"

namespace launcher {

rlimit raise_open_files() {
  rlimit original{};
  ::getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

}  // namespace launcher
