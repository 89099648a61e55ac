#include "launcher/plan/python_interpreter.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace launcher {

std::string python_interpreter() {
  const char* named = std::getenv("PYTHON_EXEC");
  if (named != nullptr && *named != '\0') return named;
  std::error_code error;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  const auto python = folder / "python3";
  const bool is_environment = !error && std::filesystem::exists(folder.parent_path() / "pyvenv.cfg", error);
  return is_environment && ::access(python.c_str(), X_OK) == 0 ? python.string() : "python3";
}

}  // namespace launcher
