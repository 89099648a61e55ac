#include "launcher/local/processes/descendants.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <unordered_map>

#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

constexpr std::string_view kSpace = " ";
// Flags of the kernel: the process is exiting, has written its core file, or is writing it.
constexpr std::uint64_t kEndingFlags = 0x4 | 0x8 | 0x200;

// Reads one field of the stat line. Fields are separated by single spaces.
template <typename Number>
bool take_number(std::string_view& text, Number& number) {
  const std::string_view field = text.substr(0, text.find(kSpace));
  const auto [end, error] = std::from_chars(field.data(), field.data() + field.size(), number);
  if (error != std::errc() || end != field.data() + field.size()) return false;
  text.remove_prefix(std::min(text.size(), field.size() + 1));
  return true;
}

bool skip_fields(std::string_view& text, int count) {
  for (int i = 0; i < count; ++i) {
    const std::size_t space = text.find(kSpace);
    if (space == std::string_view::npos) return false;
    text.remove_prefix(space + 1);
  }
  return true;
}

}  // namespace

std::optional<ProcessIdentity> parse_process_stat(std::string_view text) {
  // The format is: pid (command) state parent group ... Field 9 is the flags, field 22 the start time.
  ProcessIdentity process;
  if (!take_number(text, process.pid) || process.pid <= 0)
    return std::nullopt;  // kill() with 0 or a negative number signals many processes
  const std::size_t command_end = text.rfind(") ");
  if (command_end == std::string_view::npos || text.size() < command_end + 4) return std::nullopt;
  text.remove_prefix(command_end + 2);
  process.state = text.front();
  std::uint64_t flags = 0;
  if (!skip_fields(text, 1) || !take_number(text, process.parent) || !take_number(text, process.group) ||
      !skip_fields(text, 3) || !take_number(text, flags) || !skip_fields(text, 12) ||
      !take_number(text, process.start_time)) {
    return std::nullopt;
  }
  process.is_ending = (flags & kEndingFlags) != 0;
  return process;
}

std::optional<ProcessIdentity> identify(pid_t pid) {
  const UniqueFd file(::open(("/proc/" + std::to_string(pid) + "/stat").c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return std::nullopt;
  std::array<char, 1024> text;
  const ssize_t size = ::read(file.get(), text.data(), text.size());
  if (size <= 0) return std::nullopt;
  return parse_process_stat(std::string_view(text.data(), static_cast<std::size_t>(size)));
}

std::vector<ProcessIdentity> descendants_of(pid_t root) {
  std::unordered_multimap<pid_t, ProcessIdentity> children;
  const std::unique_ptr<DIR, int (*)(DIR*)> proc(::opendir("/proc"), [](DIR* dir) { return ::closedir(dir); });
  if (!proc) return {};
  while (const dirent* entry = ::readdir(proc.get())) {
    const std::string_view name(entry->d_name);
    pid_t pid = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), pid);
    if (error != std::errc() || end != name.data() + name.size()) continue;
    if (const auto process = identify(pid)) children.emplace(process->parent, *process);
  }
  std::vector<ProcessIdentity> found;
  std::vector<pid_t> parents = {root};
  for (std::size_t i = 0; i < parents.size(); ++i) {
    const auto [first, last] = children.equal_range(parents[i]);
    for (auto child = first; child != last; ++child) {
      parents.push_back(child->second.pid);
      if (child->second.state != 'Z' && child->second.state != 'X') found.push_back(child->second);
    }
  }
  return found;
}

std::optional<std::string> variable_of(pid_t pid, std::string_view name) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/environ", std::ios::binary);
  for (std::string entry; std::getline(file, entry, '\0');) {
    if (entry.starts_with(name) && entry.size() > name.size() && entry[name.size()] == '=') {
      return entry.substr(name.size() + 1);
    }
  }
  return std::nullopt;
}

bool signal_process(const ProcessIdentity& process, int signal_number) {
  // The pidfd refers to one process. The check after it makes sure that this is the process that was found.
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, process.pid, 0)));
  const auto now = identify(process.pid);
  if (!now || now->start_time != process.start_time) return false;
  if (pidfd && ::syscall(SYS_pidfd_send_signal, pidfd.get(), signal_number, nullptr, 0) == 0) return true;
  return ::kill(process.pid, signal_number) == 0;
}

}  // namespace launcher
