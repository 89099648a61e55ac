#include "launcher/observe/straggler/kernel_figures.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "launcher/observe/watch/process_state.h"
#include "launcher/os/machine/own_cgroup.h"
#include "launcher/os/machine/usable_cpus.h"

namespace launcher {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string file_of(pid_t pid, const char* name) {
  return "/proc/" + std::to_string(pid) + "/" + name;
}

std::uint64_t number_in(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// Returns 0 if `name` is not in `text`.
std::uint64_t number_after(std::string_view text, std::string_view name) {
  const std::size_t at = text.find(name);
  return at == std::string_view::npos ? 0 : number_in(text.substr(at + name.size()));
}

// Returns the file with the time for which the process's cgroup was throttled; "" if the cgroup has no such file.
std::string cpu_stat_of(pid_t pid) {
  const std::string groups = text_of(file_of(pid, "cgroup"));
  const std::string mounts = text_of("/proc/self/mountinfo");
  for (const char* controller : {"cpu", ""}) {
    const auto folder = cgroup_folder(groups, mounts, controller);
    if (folder && text_of(*folder + "/cpu.stat").find("throttled") != std::string::npos) return *folder + "/cpu.stat";
  }
  return "";
}

}  // namespace

Scheduled scheduled_in(std::string_view schedstat) {
  const std::size_t blank = schedstat.find(' ');
  if (blank == std::string_view::npos) return {};
  return {.on_cpu_us = number_in(schedstat) / 1000, .run_delay_us = number_in(schedstat.substr(blank + 1)) / 1000};
}

std::uint64_t throttled_us(std::string_view cpu_stat) {
  const std::uint64_t nanoseconds = number_after(cpu_stat, "throttled_time ");
  return nanoseconds != 0 ? nanoseconds / 1000 : number_after(cpu_stat, "throttled_usec ");
}

// Adds the times of the thread that has needed a CPU most since the last call: the thread that trains, or one for which
// that thread waits.
void KernelFigures::sample_threads(pid_t pid, KnownProcess& known) {
  std::map<pid_t, Scheduled> threads;
  Scheduled busiest;
  std::error_code none;
  const std::filesystem::directory_iterator folder(file_of(pid, "task"), none);
  for (auto thread = begin(folder); !none && thread != end(folder); thread.increment(none)) {
    const pid_t number = std::atoi(thread->path().filename().c_str());
    const Scheduled now = scheduled_in(text_of(thread->path() / "schedstat"));
    threads[number] = now;
    const auto before = known.threads.find(number);
    if (before == known.threads.end()) continue;
    const Scheduled since{.on_cpu_us = now.on_cpu_us - std::min(before->second.on_cpu_us, now.on_cpu_us),
                          .run_delay_us = now.run_delay_us - std::min(before->second.run_delay_us, now.run_delay_us)};
    if (since.on_cpu_us + since.run_delay_us > busiest.on_cpu_us + busiest.run_delay_us) busiest = since;
  }
  known.threads = std::move(threads);
  known.busiest.on_cpu_us += busiest.on_cpu_us;
  known.busiest.run_delay_us += busiest.run_delay_us;
}

DelayCounters KernelFigures::read_counters(pid_t pid) {
  const auto [found, is_new] = known_.try_emplace(pid);
  KnownProcess& known = found->second;
  if (is_new) known.cpu_stat = cpu_stat_of(pid);
  // If the process has used no processor time since the last call, only its state can have changed.
  const auto time = processor_time(pid);
  if (is_new || !time || time != known.processor_time) {
    known.processor_time = time;
    sample_threads(pid, known);
    known.delays.on_cpu_us = known.busiest.on_cpu_us;
    known.delays.run_delay_us = known.busiest.run_delay_us;
    known.delays.throttled_us = known.cpu_stat.empty() ? 0 : throttled_us(text_of(known.cpu_stat));
    known.delays.cpus = usable_cpus_of(pid);
  }
  if (const auto process = process_stat(pid)) {
    ++known.delays.sample_count;
    if (process->state == 'D') ++known.delays.disk_sample_count;
    known.delays.major_faults = process->major_faults;
    known.delays.disk_us = static_cast<std::uint64_t>(seconds_of_ticks(process->disk_wait_ticks) * 1e6);
  }
  return known.delays;
}

}  // namespace launcher
