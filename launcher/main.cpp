#include <string>
#include <vector>

#include "launcher/launch.h"

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + (argc > 0 ? 1 : 0), argv + argc);
  return launcher::launch(arguments);
}
