#include <string>
#include <vector>

#include "launcher/job/launch.h"
#include "launcher/os/system/process_title.h"

extern const char* const kSourceCommit;  // in a source that cmake/SourceCommit.cmake writes

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  launcher::ProcessTitle title(argc, argv);
  return launcher::launch(arguments, title, kSourceCommit);
}
