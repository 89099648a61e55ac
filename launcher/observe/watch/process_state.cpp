#include "launcher/observe/watch/process_state.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "launcher/os/system/unique_fd.h"

namespace launcher {
namespace {

template <typename Number>
Number number_in(std::string_view text, int base = 10) {
  Number value{};
  std::from_chars(text.data(), text.data() + text.size(), value, base);
  return value;
}

// Returns the fields after the command, which may contain any character.
std::vector<std::string_view> fields_after_command(std::string_view stat) {
  std::vector<std::string_view> fields;
  const std::size_t bracket = stat.rfind(')');
  if (bracket == std::string_view::npos) return fields;
  stat.remove_prefix(bracket + 1);
  while (true) {
    const std::size_t begin = stat.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return fields;
    stat.remove_prefix(begin);
    const std::size_t end = std::min(stat.find_first_of(" \n"), stat.size());
    fields.push_back(stat.substr(0, end));
    stat.remove_prefix(end);
  }
}

// The text after "name:" in a file of such lines.
std::string_view value_after(std::string_view text, std::string_view name) {
  for (std::size_t at = text.find(name); at != std::string_view::npos; at = text.find(name, at + 1)) {
    if (at > 0 && text[at - 1] != '\n') continue;
    std::string_view value = text.substr(at + name.size());
    value = value.substr(0, value.find('\n'));
    value.remove_prefix(std::min(value.find_first_not_of(": \t"), value.size()));
    return value;
  }
  return {};
}

bool has_signal(std::string_view mask, int signal_number) {
  return signal_number >= 1 && signal_number <= 64 &&
         (number_in<std::uint64_t>(mask, 16) >> (signal_number - 1) & 1) != 0;
}

// Returns "" when it cannot be read. Uses no stream, because it is called again and again while a job runs.
std::string proc_file(pid_t pid, const char* name) {
  const UniqueFd file(::open(("/proc/" + std::to_string(pid) + "/" + name).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text;
  std::array<char, 1024> part;
  ssize_t count = 0;
  while (file && (count = ::read(file.get(), part.data(), part.size())) > 0) {
    text.append(part.data(), static_cast<std::size_t>(count));
    if (static_cast<std::size_t>(count) < part.size()) break;
  }
  return text;
}

}  // namespace

std::optional<ProcessState> parse_process_state(std::string_view stat, std::uint64_t page_bytes) {
  // Indexes count from the field after the command, which is field 3, the state.
  constexpr std::size_t kState = 0;
  constexpr std::size_t kMinorFaults = 7;
  constexpr std::size_t kMajorFaults = 9;
  constexpr std::size_t kUserTicks = 11;
  constexpr std::size_t kSystemTicks = 12;
  constexpr std::size_t kResidentPages = 21;
  constexpr std::size_t kDiskWaitTicks = 39;
  const auto fields = fields_after_command(stat);
  if (fields.size() <= kResidentPages || fields[kState].empty()) return std::nullopt;
  return ProcessState{
      .state = fields[kState].front(),
      .cpu_ticks = number_in<std::uint64_t>(fields[kUserTicks]) + number_in<std::uint64_t>(fields[kSystemTicks]),
      .resident_bytes = number_in<std::uint64_t>(fields[kResidentPages]) * page_bytes,
      .minor_faults = number_in<std::uint64_t>(fields[kMinorFaults]),
      .major_faults = number_in<std::uint64_t>(fields[kMajorFaults]),
      .disk_wait_ticks = fields.size() > kDiskWaitTicks ? number_in<std::uint64_t>(fields[kDiskWaitTicks]) : 0};
}

std::uint64_t io_bytes_in(std::string_view io) {
  return number_in<std::uint64_t>(value_after(io, "rchar")) + number_in<std::uint64_t>(value_after(io, "wchar"));
}

bool takes_signal(std::string_view status, int signal_number) {
  return has_signal(value_after(status, "SigCgt"), signal_number);
}

bool blocks_signal(std::string_view status, int signal_number) {
  return has_signal(value_after(status, "SigBlk"), signal_number);
}

std::uint64_t voluntary_switches_in(std::string_view status) {
  return number_in<std::uint64_t>(value_after(status, "voluntary_ctxt_switches"));
}

std::uint64_t voluntary_switches(pid_t thread) {
  return voluntary_switches_in(proc_file(thread, "status"));
}

std::vector<pid_t> thread_numbers(pid_t pid) {
  std::vector<pid_t> threads;
  std::error_code none;
  const std::filesystem::directory_iterator entries("/proc/" + std::to_string(pid) + "/task", none);
  if (none) return threads;
  for (auto entry = begin(entries); entry != end(entries); entry.increment(none)) {
    const auto thread = number_in<pid_t>(entry->path().filename().native());
    if (thread > 0) threads.push_back(thread);
  }
  return threads;
}

std::optional<ProcessState> process_stat(pid_t pid) {
  return parse_process_state(proc_file(pid, "stat"), static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE)));
}

std::optional<std::uint64_t> processor_time(pid_t pid) {
  constexpr clockid_t kWholeProcess = 2;  // the kernel's CPUCLOCK_SCHED
  timespec time{};
  if (pid <= 0 || ::clock_gettime((~static_cast<clockid_t>(pid)) * 8 + kWholeProcess, &time) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(time.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(time.tv_nsec);
}

std::optional<ProcessState> process_state(pid_t pid, bool in_detail) {
  auto state = process_stat(pid);
  if (!state) return state;
  state->io_bytes = io_bytes_in(proc_file(pid, "io"));
  if (in_detail && state->state != 'R') {
    state->waits_in = proc_file(pid, "wchan");
    if (state->waits_in == "0") state->waits_in.clear();
  }
  return state;
}

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code none;
  const std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", none);
  if (none) return children;
  for (auto thread = begin(threads); thread != end(threads); thread.increment(none)) {
    std::ifstream list(thread->path() / "children");
    for (pid_t child = 0; list >> child;) children.push_back(child);
  }
  return children;
}

std::vector<pid_t> process_tree_of(pid_t pid) {
  constexpr std::size_t kMax = 1000;  // the limit for a program that starts processes faster than they are counted
  std::vector<pid_t> family{pid};
  for (std::size_t i = 0; i < family.size() && family.size() < kMax; ++i) {
    const auto children = children_of(family[i]);
    family.insert(family.end(), children.begin(), children.end());
  }
  return family;
}

ProcessTreeWork process_tree_work(const std::vector<pid_t>& family) {
  ProcessTreeWork work;
  for (const pid_t pid : family) {
    const auto state = process_state(pid, /*in_detail=*/false);
    if (!state) continue;
    work.cpu_ticks += state->cpu_ticks;
    work.io_bytes += state->io_bytes;
    work.resident_bytes += state->resident_bytes;
    work.faults += state->minor_faults + state->major_faults;
    if (state->state == 'R') work.ready.push_back(pid);
    work.ticks[pid] = state->cpu_ticks;
  }
  return work;
}

std::optional<std::uint64_t> process_tree_time(const std::vector<pid_t>& family) {
  std::uint64_t sum = 0;
  for (const pid_t pid : family) {
    const auto time = processor_time(pid);
    if (!time) return std::nullopt;
    sum += *time;
  }
  return sum;
}

std::vector<pid_t> ready_processes(const std::vector<pid_t>& family) {
  std::vector<pid_t> ready;
  std::copy_if(family.begin(), family.end(), std::back_inserter(ready), [](pid_t pid) {
    const auto state = process_stat(pid);
    return state && state->state == 'R';
  });
  return ready;
}

std::uint64_t ticks_since(const ProcessTreeWork& before, const ProcessTreeWork& now) {
  std::uint64_t sum = 0;
  for (const auto& [pid, ticks] : now.ticks) {
    const auto known = before.ticks.find(pid);
    if (known != before.ticks.end()) sum += ticks - std::min(ticks, known->second);
  }
  return sum;
}

double seconds_of_ticks(std::uint64_t ticks) {
  return static_cast<double>(ticks) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::string to_text(const ProcessState& state) {
  const std::string where = state.waits_in.empty() ? "" : " in " + state.waits_in;
  switch (state.state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping" + where;
    case 'D':
      return "waiting for a disk" + where;
    case 'T':
      return "stopped by a signal";
    case 't':
      return "stopped by a debugger";
    case 'Z':
    case 'X':
      return "ending";
    default:
      return "in state " + std::string(1, state.state);
  }
}

}  // namespace launcher
