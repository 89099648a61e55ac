#include "launcher/local/processes/user_signals.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <unordered_map>
#include <utility>

#include "launcher/os/system/signals.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/plan/outcome/describe.h"

namespace launcher {
namespace {

// Returns the hexadecimal mask after `name`, such as "SigCgt:".
std::optional<std::uint64_t> mask_in(std::string_view status, std::string_view name) {
  const std::size_t line = status.find(name);
  if (line == std::string_view::npos || (line > 0 && status[line - 1] != '\n')) return std::nullopt;
  std::string_view text = status.substr(line + name.size());
  text.remove_prefix(std::min(text.size(), text.find_first_not_of(" \t")));
  std::uint64_t mask = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), mask, 16);
  return error == std::errc() ? std::optional(mask) : std::nullopt;
}

Disposition read_disposition(pid_t pid, int signal_number) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::ostringstream text;
  text << file.rdbuf();
  const Disposition disposition = disposition_in(text.str(), signal_number);
  return disposition == Disposition::kTerminates && is_in_sigwait(pid, signal_number) ? Disposition::kHandles
                                                                                      : disposition;
}

// Returns the set of signals at `address` in the memory of the process; 0 when it cannot be read.
std::uint64_t signal_set_at(pid_t pid, std::uint64_t address) {
  const UniqueFd memory(::open(("/proc/" + std::to_string(pid) + "/mem").c_str(), O_RDONLY | O_CLOEXEC));
  std::uint64_t set = 0;
  if (!memory || ::pread(memory.get(), &set, sizeof set, static_cast<off_t>(address)) != sizeof set) return 0;
  return set;
}

// How long a process may block all signals because it is starting another one.
constexpr auto kForkTime = std::chrono::milliseconds(100);

}  // namespace

bool is_in_sigwait(pid_t pid, int signal_number) {
  std::error_code error;
  std::filesystem::directory_iterator threads("/proc/" + std::to_string(pid) + "/task", error);
  for (const std::filesystem::directory_iterator end; !error && threads != end; threads.increment(error)) {
    std::ifstream file(threads->path() / "syscall");
    long number = -1;
    std::uint64_t address = 0;
    if (!(file >> number >> std::hex >> address) || number != SYS_rt_sigtimedwait) continue;
    if ((signal_set_at(pid, address) & std::uint64_t{1} << (signal_number - 1)) != 0) return true;
  }
  return false;
}

Disposition disposition_in(std::string_view status, int signal_number) {
  const auto caught = mask_in(status, "SigCgt:");
  const auto blocked = mask_in(status, "SigBlk:");
  const auto ignored = mask_in(status, "SigIgn:");
  if (!caught || !blocked || !ignored) return Disposition::kUnknown;
  const std::uint64_t bit = std::uint64_t{1} << (signal_number - 1);
  if ((*caught & bit) != 0) return Disposition::kHandles;
  if ((*blocked & bit) != 0) return Disposition::kBlocks;
  return (*ignored & bit) != 0 ? Disposition::kIgnores : Disposition::kTerminates;
}

SignalTargets signal_targets(const std::map<pid_t, int>& ranks, const std::vector<ProcessIdentity>& processes,
                             const std::function<Disposition(pid_t)>& disposition_of) {
  SignalTargets targets;
  std::unordered_map<pid_t, std::pair<pid_t, int>>
      searched;  // processes below which a handler may be found, and their ranks
  std::vector<std::pair<ProcessIdentity, pid_t>> handlers;
  std::map<int, bool> would_end;
  for (const ProcessIdentity& process : processes) {
    const auto own = ranks.find(process.pid);
    const auto above = searched.find(process.parent);
    if (own == ranks.end() && above == searched.end()) continue;
    const std::pair<pid_t, int> rank = own != ranks.end() ? std::pair<pid_t, int>(*own) : above->second;
    const Disposition disposition = disposition_of(process.pid);
    if (disposition == Disposition::kHandles) {
      handlers.emplace_back(process, rank.first);
      would_end[rank.second] = false;
      continue;
    }
    searched.emplace(process.pid, rank);
    if (disposition == Disposition::kBlocks) {
      targets.blockers.insert(process.pid);
      targets.undecided.insert(rank);
    }
    if (own != ranks.end()) would_end[rank.second] = disposition == Disposition::kTerminates;
  }
  for (const auto& [process, rank] : handlers) {
    if (targets.undecided.count(rank) == 0) targets.handlers.push_back(process);
  }
  for (const auto& [process, rank] : targets.undecided) would_end.erase(rank);
  for (const auto& [rank, ends] : would_end) {
    if (ends) targets.without.push_back(rank);
  }
  return targets;
}

SignalTargets signal_targets(const std::map<pid_t, int>& ranks, int signal_number) {
  return signal_targets(ranks, descendants_of(::getpid()),
                        [signal_number](pid_t pid) { return read_disposition(pid, signal_number); });
}

SignalTargets resolve_undecided(const SignalTargets& before, int signal_number) {
  return signal_targets(before.undecided, descendants_of(::getpid()), [&](pid_t pid) {
    const Disposition now = read_disposition(pid, signal_number);
    if (now != Disposition::kBlocks) return now;
    return before.blockers.count(pid) > 0 ? Disposition::kHandles : Disposition::kUnknown;
  });
}

UserSignalForwarder::~UserSignalForwarder() {
  for (const EventLoop::TimerId& timer : timers_) loop_.cancel(timer);
}

void UserSignalForwarder::pass_on(const std::map<pid_t, int>& ranks, int signal_number) {
  const SignalTargets targets = signal_targets(ranks, signal_number);
  send_to(targets, signal_number);
  if (targets.undecided.empty()) return;
  timers_.push_back(loop_.call_at(EventLoop::Clock::now() + kForkTime, [this, targets, signal_number] {
    send_to(resolve_undecided(targets, signal_number), signal_number);
  }));
}

void UserSignalForwarder::send_to(const SignalTargets& targets, int signal_number) {
  for (const ProcessIdentity& process : targets.handlers) signal_process(process, signal_number);
  if (targets.without.empty() || !reported_.insert(signal_number).second) return;
  messages_.print(
      signal_name(signal_number) + " was not passed on to " + rank_list(targets.without) +
      ": no process of these ranks has a handler for it, and without a handler the signal ends the process");
}

}  // namespace launcher
