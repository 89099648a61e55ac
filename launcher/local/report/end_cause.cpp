#include "launcher/local/report/end_cause.h"

#include <signal.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "launcher/os/system/launch_error.h"

namespace launcher {
namespace {

// Less is left where a write to shared memory has just failed.
constexpr std::uint64_t kLittleSharedMemory = 1 << 20;

std::string limit_text(const char* what, rlim_t limit, const char* unit, const char* option) {
  const std::string value = limit == RLIM_INFINITY ? "" : " of " + std::to_string(limit) + " " + unit;
  return std::string("it reached the limit") + value + " on " + what + " (" + option +
         "); raise it before ddprun starts";
}

bool used_up_cpu(const EndContext& context) {
  // The kernel looks once a second.
  return context.cpu_seconds != RLIM_INFINITY &&
         context.used_cpu_seconds + 1 >= static_cast<double>(context.cpu_seconds);
}

std::string cause_of_signal(int signal, const EndContext& context) {
  switch (signal) {
    case SIGXCPU:
      return limit_text("CPU time", context.cpu_seconds, "s", "ulimit -t");
    case SIGXFSZ:
      return limit_text("the size of files", context.file_bytes, "bytes", "ulimit -f");
    case SIGKILL:  // what comes at the hard limit, or where both are equal
      return used_up_cpu(context) ? limit_text("CPU time", context.cpu_seconds, "s", "ulimit -t") : "";
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
     "the dynamic linker does not find a library; ldd PROGRAM lists them, and -x LD_LIBRARY_PATH=FOLDER names its "
     "folder"},
    {"' not found (required by", "the program was built on a newer system than this one; build it here"},
    {"No module named", "the interpreter is python3 of PATH; PYTHON_EXEC=FILE chooses another one"},
    {"Too many open files", "limit on open files: ulimit -n"},
    {"File too large", "limit on the size of files: ulimit -f"},
});

// What programs write about an option that they do not know.
bool complains_of_option(std::string_view text) {
  constexpr std::array<std::string_view, 6> kPhrases = {"unrecognized argument", "unrecognized option",
                                                        "invalid option",        "o such option",
                                                        "nknown option",         "was not expected"};
  return std::any_of(kPhrases.begin(), kPhrases.end(),
                     [&](std::string_view phrase) { return text.find(phrase) != std::string_view::npos; });
}

// The option of ddprun in the program's complaint.
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
  if (complains_of_option(text)) {
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
    found.free_shared_bytes = kLittleSharedMemory;  // nothing is known
  }
  return found;
}

std::string end_cause(const RankEnd& rank, const EndContext& context) {
  if (rank.stop_requested || !rank.was_executed) return "";
  if (rank.signal != 0) return cause_of_signal(rank.signal, context);
  if (std::string cause = cause_of_last_line(rank.last_lines, context); !cause.empty()) return cause;
  // A shell ends so after a command that a signal has ended.
  const int signal = rank.exit_code - to_int(ExitStatus::kSignalBase);
  if (signal != SIGXCPU && signal != SIGXFSZ && signal != SIGKILL) return "";
  const std::string cause = cause_of_signal(signal, context);
  return cause.empty() ? "" : "of a process that it started: " + cause;
}

}  // namespace launcher
