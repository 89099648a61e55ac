#include "launcher/observe/watch/python_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <iterator>
#include <limits>
#include <optional>
#include <string>

#include "launcher/os/system/elf_symbols.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

struct Runtime {
  std::uint64_t address = 0;
  int minor = 0;
};

// The interpreter is a library, or part of the program's file.
std::optional<Runtime> runtime_of(const std::string& process) {
  std::ifstream maps(process + "/maps", std::ios::binary);
  const auto files = executable_files(std::string(std::istreambuf_iterator<char>(maps), {}));
  for (const MappedFile& file : files) {
    const int minor = python_minor(std::string_view(file.path).substr(file.path.rfind('/') + 1));
    if (minor == 0) continue;
    // The path is as the process sees it, and the process may be in a container.
    if (const auto address = variable_at(process + "/root" + file.path, "_PyRuntime", file))
      return Runtime{*address, minor};
  }
  return std::nullopt;
}

}  // namespace

int python_minor(std::string_view file_name) {
  constexpr std::string_view kName = "python3.";
  if (file_name.starts_with("lib")) file_name.remove_prefix(3);
  if (!file_name.starts_with(kName)) return 0;
  file_name.remove_prefix(kName.size());
  int minor = 0;
  std::from_chars(file_name.data(), file_name.data() + file_name.size(), minor);
  return minor;
}

std::map<std::int64_t, std::vector<PythonFrame>> python_stacks(pid_t pid) {
  const std::string process = "/proc/" + std::to_string(pid);
  const auto runtime = runtime_of(process);
  if (!runtime) return {};
  // Containers may forbid the system call that reads another process's memory, but not this file.
  const UniqueFd memory(::open((process + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  if (!memory) return {};
  const ReadMemory read = [&](std::uint64_t address, void* to, std::size_t bytes) {
    return address <= static_cast<std::uint64_t>(std::numeric_limits<off_t>::max()) &&
           ::pread(memory.get(), to, bytes, static_cast<off_t>(address)) == static_cast<ssize_t>(bytes);
  };
  return python_frames(read, runtime->address, runtime->minor, pid);
}

}  // namespace launcher
