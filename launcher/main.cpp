#include <unistd.h>

#include <cstdio>
#include <string>
#include <vector>

#include "launcher/job/launch.h"
#include "launcher/os/system/process_title.h"

extern const char* const kSourceCommit;  // in a source that cmake/SourceCommit.cmake writes

namespace {

// Ends the process without destructors of statics and exit handlers. They have nothing to do, and sweeper and
// supervisor, which are forked, would copy each page that these write to. The reports of sanitizers are such handlers,
// so they still run.
int end_process(int status) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
  return status;
#else
  std::fflush(nullptr);
  ::_exit(status);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  launcher::ProcessTitle title(argc, argv);
  return end_process(launcher::launch(arguments, title, kSourceCommit));
}
