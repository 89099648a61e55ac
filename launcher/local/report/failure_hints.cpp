#include "launcher/local/report/failure_hints.h"

#include <signal.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>

#include "launcher/os/machine/gpu_information.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/plan/outcome/first_failure.h"

namespace launcher {
namespace {

// When a write to shared memory has just failed, less than this is free.
constexpr std::uint64_t kLittleSharedMemory = 1 << 20;

std::string limit_text(const char* what, rlim_t limit, const char* unit, const char* option) {
  const std::string value = limit == RLIM_INFINITY ? "" : " of " + std::to_string(limit) + " " + unit;
  return std::string("it reached the limit") + value + " on " + what + " (" + option +
         "); raise it before ddprun starts";
}

bool exhausted_cpu_limit(const EndContext& context) {
  // The kernel checks the limit once a second.
  return context.cpu_seconds != RLIM_INFINITY &&
         context.used_cpu_seconds + 1 >= static_cast<double>(context.cpu_seconds);
}

std::string cause_of_signal(int signal, const EndContext& context) {
  switch (signal) {
    case SIGXCPU:
      return limit_text("CPU time", context.cpu_seconds, "s", "ulimit -t");
    case SIGXFSZ:
      return limit_text("the size of files", context.file_bytes, "bytes", "ulimit -f");
    case SIGKILL:  // the kernel's signal at the hard limit, or when soft and hard limit are equal
      return exhausted_cpu_limit(context) ? limit_text("CPU time", context.cpu_seconds, "s", "ulimit -t") : "";
    case SIGILL:
      return "the program was built for another processor (-march=native on another machine?)";
    case SIGBUS:
      return context.free_shared_bytes >= kLittleSharedMemory
                 ? ""
                 : "/dev/shm is full; in a container start it with more: docker run --shm-size 8g, or --ipc host";
    default:
      return "";
  }
}

struct LastLine {
  std::string_view phrase;
  std::string_view cause;
};

constexpr std::array kLastLines = std::to_array<LastLine>({
    {"error while loading shared libraries",
     "a shared library was not found; ldd PROGRAM shows which one, and -x LD_LIBRARY_PATH=FOLDER sets its folder"},
    {"' not found (required by", "the program was built on a newer system than this one; build it here"},
    {"No module named", "the interpreter is the python3 in PATH; PYTHON_EXEC=FILE chooses another one"},
    {"Too many open files", "limit on open files: ulimit -n"},
    {"File too large", "limit on the size of files: ulimit -f"},
});

// Texts that programs print about an option that they do not know.
bool reports_unknown_option(std::string_view text) {
  constexpr std::array<std::string_view, 6> kUnknownOptionPhrases = {"unrecognized argument", "unrecognized option",
                                                                     "invalid option",        "o such option",
                                                                     "nknown option",         "was not expected"};
  return std::any_of(kUnknownOptionPhrases.begin(), kUnknownOptionPhrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != std::string_view::npos; });
}

// Returns the option of ddprun that the program complains about.
std::string_view launcher_option(std::string_view text) {
  constexpr std::array<std::string_view, 16> kOptions = {
      "--nproc_per_node", "--nproc-per-node", "--nnodes",      "--node_rank", "--node-rank",  "--master_addr",
      "--master-addr",    "--master_port",    "--master-port", "--rdzv",      "--standalone", "--max_restarts",
      "--max-restarts",   "--hostfile",       "-np ",          "-n "};
  const auto found = std::find_if(kOptions.begin(), kOptions.end(),
                                  [&](std::string_view option) { return text.find(option) != std::string_view::npos; });
  return found == kOptions.end() ? "" : *found;
}

std::string cause_of_last_line(std::string_view text, const EndContext& context) {
  if (reports_unknown_option(text)) {
    std::string_view option = launcher_option(text);
    if (option.ends_with(' ')) option.remove_suffix(1);
    if (!option.empty()) {
      return std::string(option) +
             " came after the program, so it was passed to the program; put ddprun's options before the program";
    }
  }
  const bool lacks_memory = text.find("bad_alloc") != std::string_view::npos ||
                            text.find("MemoryError") != std::string_view::npos ||
                            text.find("annot allocate memory") != std::string_view::npos;
  if (lacks_memory && context.memory_bytes != RLIM_INFINITY) {
    return limit_text("memory", context.memory_bytes, "bytes", "ulimit -v");
  }
  for (const auto& [phrase, cause] : kLastLines) {
    if (text.find(phrase) != std::string_view::npos) return std::string(cause);
  }
  return "";
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool leaves_core(int signal_number) {
  constexpr std::array kSignals = {SIGQUIT, SIGILL, SIGABRT, SIGFPE,  SIGSEGV,
                                   SIGBUS,  SIGSYS, SIGTRAP, SIGXCPU, SIGXFSZ};
  return std::find(kSignals.begin(), kSignals.end(), signal_number) != kSignals.end();
}

// Returns `pattern` with the process number filled in; nothing when it has fields that only the kernel knows.
std::optional<std::string> core_name(std::string_view pattern, int pid) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%') {
      name.push_back(pattern[i]);
    } else if (++i < pattern.size() && (pattern[i] == 'p' || pattern[i] == 'P')) {
      name += std::to_string(pid);
    } else {
      return std::nullopt;
    }
  }
  return name;
}

// Returns the path of this process's cgroup in /proc/self/cgroup: for the v1 controller `name`, or for v2 when `name`
// is "".
std::optional<std::string> own_cgroup(std::string_view name) {
  std::ifstream file("/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    if (std::string_view(line).substr(first + 1, second - first - 1) == name) return line.substr(second + 1);
  }
  return std::nullopt;
}

}  // namespace

EndContext end_context() {
  EndContext found;
  const auto limit = [](int which) {
    rlimit value{};
    return ::getrlimit(static_cast<__rlimit_resource>(which), &value) == 0 ? value.rlim_cur : RLIM_INFINITY;
  };
  found.cpu_seconds = limit(RLIMIT_CPU);
  found.file_bytes = limit(RLIMIT_FSIZE);
  found.memory_bytes = limit(RLIMIT_AS);
  rusage used{};
  if (::getrusage(RUSAGE_CHILDREN, &used) == 0) {
    found.used_cpu_seconds = static_cast<double>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
                             static_cast<double>(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
  }
  struct statvfs shared {};
  if (::statvfs("/dev/shm", &shared) == 0 && shared.f_blocks > 0) {
    found.free_shared_bytes = static_cast<std::uint64_t>(shared.f_bavail) * shared.f_frsize;
  } else {
    found.free_shared_bytes = kLittleSharedMemory;  // the real value is unknown; this one gives no hint
  }
  return found;
}

std::string end_cause(const RankEnd& rank, const EndContext& context) {
  if (rank.stop_requested || !rank.was_executed) return "";
  if (rank.signal != 0) return cause_of_signal(rank.signal, context);
  if (std::string cause = cause_of_last_line(rank.last_lines, context); !cause.empty()) return cause;
  // A shell exits with this status after a signal has ended its command.
  const int signal = rank.exit_code - to_int(ExitStatus::kSignalBase);
  if (signal != SIGXCPU && signal != SIGXFSZ && signal != SIGKILL) return "";
  const std::string cause = cause_of_signal(signal, context);
  return cause.empty() ? "" : "of a process that it started: " + cause;
}

std::optional<long> counter_in(std::string_view text, std::string_view name) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.size() <= name.size() || !line.starts_with(name) || line[name.size()] != ' ') continue;
    long number = 0;
    const char* end = line.data() + line.size();
    if (std::from_chars(line.data() + name.size() + 1, end, number).ec == std::errc()) return number;
  }
  return std::nullopt;
}

std::optional<long> out_of_memory_kills() {
  std::vector<std::string> files;
  if (const auto group = own_cgroup("")) {
    files = {"/sys/fs/cgroup" + *group + "/memory.events", "/sys/fs/cgroup/memory.events"};
  }
  if (const auto group = own_cgroup("memory")) {
    files.push_back("/sys/fs/cgroup/memory" + *group + "/memory.oom_control");
    files.emplace_back(
        "/sys/fs/cgroup/memory/memory.oom_control");  // in a container the process's own cgroup appears as the root
  }
  for (const std::string& file : files) {
    if (const auto kills = counter_in(read_text(file), "oom_kill")) return kills;
  }
  return std::nullopt;
}

std::string core_hint(const RankEnd& rank, std::string_view pattern, rlim_t limit, const std::string& folder) {
  if (!leaves_core(rank.signal)) return {};
  while (!pattern.empty() && pattern.back() == '\n') pattern.remove_suffix(1);
  if (!rank.core_dumped) {
    if (limit != 0 || pattern.starts_with("|")) return {};
    return "no core file: their size is limited to 0 (ulimit -c unlimited)";
  }
  if (pattern.find("systemd-coredump") != std::string_view::npos) {
    return "core file: coredumpctl debug " + std::to_string(rank.pid);
  }
  if (pattern.starts_with("|")) {
    std::string_view command = pattern.substr(1);
    command.remove_prefix(std::min(command.size(), command.find_first_not_of(' ')));
    command = command.substr(0, command.find(' '));
    return "the core file was given to " + std::string(command) + ", see /proc/sys/kernel/core_pattern";
  }
  const auto name = core_name(pattern, rank.pid);
  const std::string place = pattern.starts_with("/") ? "" : folder + "/";
  if (!name) return "core file: named by the pattern " + place + std::string(pattern);
  const std::string file = place + *name;
  // The kernel appends the process number itself when core_uses_pid is set.
  const std::string numbered = std::string(file).append(".").append(std::to_string(rank.pid));
  const bool adds_pid = pattern.find('%') == std::string_view::npos && std::filesystem::exists(numbered);
  return "core file: " + (adds_pid ? numbered : file);
}

std::vector<std::string> failure_hints(const RankEnd& rank, std::optional<long> kills_before, const std::string& folder,
                                       const std::string& signal_reason) {
  std::vector<std::string> hints;
  rlimit core{};
  ::getrlimit(RLIMIT_CORE, &core);
  if (std::string hint = core_hint(rank, read_text("/proc/sys/kernel/core_pattern"), core.rlim_cur, folder);
      !hint.empty())
    hints.push_back(std::move(hint));
  const std::string cause = end_cause(rank, end_context());
  if (!cause.empty()) hints.push_back(cause);
  const auto kills_now = kills_before ? out_of_memory_kills() : std::nullopt;
  if (kills_now && *kills_now > *kills_before) {
    hints.push_back(std::string("out of memory: the kernel killed ")
                        .append(std::to_string(*kills_now - *kills_before))
                        .append(" process(es) of this job's cgroup"));
  } else if (!signal_reason.empty()) {
    hints.push_back(signal_reason);
  } else if (rank.signal == SIGKILL && !rank.stop_requested && cause.empty()) {
    hints.emplace_back("ddprun did not send this signal; the kernel sends it when memory runs out (see dmesg)");
  }
  return hints;
}

std::string folder_of_ranks(const std::string& working_folder) {
  std::error_code error;
  return working_folder.empty() ? std::filesystem::current_path(error).string() : working_folder;
}

void add_failure_details(JobEnd& end, std::optional<long> kills_before, const std::string& working_folder,
                         const std::function<std::string(int local_rank)>& gpu_of,
                         const std::function<std::string(const RankEnd& rank)>& signal_reason) {
  const auto first = end.elsewhere ? std::nullopt : first_failure(end);
  if (!first) return;
  const RankEnd& rank = end.ranks[*first];
  end.hints =
      failure_hints(rank, kills_before, folder_of_ranks(working_folder), signal_reason ? signal_reason(rank) : "");
  if (const std::vector<GpuInformation> gpus = driver_gpus(); !gpus.empty()) {
    const std::string entry = gpu_of(rank.local_rank);
    end.gpu = entry.empty() ? "no GPU visible" : describe_gpu(gpus, entry);
  }
}

}  // namespace launcher
