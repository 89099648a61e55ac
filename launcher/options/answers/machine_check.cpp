#include <fcntl.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>

#include "launcher/nodes/control/secret.h"
#include "launcher/nodes/store/store_server.h"
#include "launcher/options/answers/answers.h"
#include "launcher/os/machine/gpu_driver.h"
#include "launcher/os/machine/gpu_information.h"
#include "launcher/os/machine/own_cgroup.h"
#include "launcher/os/machine/usable_cpus.h"
#include "launcher/os/network/tcp_socket.h"
#include "launcher/os/system/captured_output.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/launch_error.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/temporary_folder.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/os/version.h"
#include "launcher/plan/program.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;
using Kind = Finding::Kind;

constexpr auto kPythonTimeout = 20s;  // a first start on a network file system is slow

Finding check_build() {
  std::string text =
      std::string("ddprun ") + kDdprunVersion + ", " + kBuildType + ", GCC-compatible compiler " + __VERSION__;
  if (*kSanitizers != '\0') text += std::string(", sanitizers ") + kSanitizers;
  return {Kind::kGood, "build", text};
}

Finding check_kernel() {
  utsname name{};
  ::uname(&name);
  return {Kind::kGood, "kernel", std::string(name.sysname) + " " + name.release + " " + name.machine};
}

Finding check_pidfd() {
  const UniqueFd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, ::getpid(), 0)));
  if (pidfd) return {Kind::kGood, "process descriptors", "pidfd_open works"};
  return {Kind::kNote, "process descriptors",
          std::string("no pidfd_open (") + std::strerror(errno) + "): SIGCHLD reports the end of ranks instead"};
}

Finding check_subreaper() {
  if (::prctl(PR_SET_CHILD_SUBREAPER, 1) == 0) return {Kind::kGood, "leftovers", "ddprun can be a subreaper"};
  return {Kind::kNote, "leftovers", "ddprun cannot be a subreaper: daemons that ranks leave running cannot be found"};
}

Finding check_cgroup() {
  const auto folder = own_cgroup_folder();
  if (!folder)
    return {Kind::kNote, "cgroup v2", "not mounted: ddprun finds leftover processes by their parent process IDs"};
  if (is_delegated(*folder)) return {Kind::kGood, "cgroup v2", "delegated: each job gets its own cgroup"};
  return {Kind::kNote, "cgroup v2",
          "not delegated (" + *folder + "): ddprun finds leftover processes by their parent process IDs"};
}

Finding check_terminals() {
  const UniqueFd terminal(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (terminal) return {Kind::kGood, "pseudo-terminals", "/dev/ptmx can be opened"};
  return {Kind::kNote, "pseudo-terminals", std::string("none: ") + std::strerror(errno)};
}

Finding check_seccomp() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("Seccomp:")) {
      const bool is_filtered = line.find_first_of("12") != std::string::npos;
      return {Kind::kGood, "seccomp", is_filtered ? "system calls are filtered, as in a container" : "no filter"};
    }
  }
  return {Kind::kGood, "seccomp", "no filter"};
}

std::string limit_text(rlim_t value) {
  return value == RLIM_INFINITY ? "unlimited" : std::to_string(value);
}

Finding check_limit(const char* what, decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  ::getrlimit(resource, &limit);
  return {Kind::kGood, what, limit_text(limit.rlim_cur) + ", can be raised to " + limit_text(limit.rlim_max)};
}

Finding check_gpus() {
  const GpuDriver driver = ask_gpu_driver();
  if (!driver.gpus) return {Kind::kNote, "GPUs", driver.problem};
  const auto& gpus = *driver.gpus;
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::string text = std::to_string(gpus.size()) + ", driver " + (driver.version.empty() ? "unknown" : driver.version) +
                     ", " + std::to_string(visible_gpus(gpus, visible)) + " visible";
  if (visible != nullptr) text.append(" with CUDA_VISIBLE_DEVICES=").append(visible);
  for (std::size_t i = 0; i < gpus.size(); ++i)
    text.append("\n").append(std::to_string(i)).append(": ").append(gpus[i]);
  return {gpus.empty() ? Kind::kNote : Kind::kGood, "GPUs", text};
}

void check_python(std::vector<Finding>& findings) {
  const std::string name = python_interpreter();
  const auto python = executable_in_path(name);
  if (!python) {
    findings.push_back({Kind::kNote, "Python", name + " was not found: .py programs cannot run"});
    return;
  }
  // Reads the package's metadata, since an import of torch takes seconds.
  const std::string script =
      "import importlib.metadata as m, platform\n"
      "print(platform.python_version())\n"
      "try: print(m.version('torch'))\n"
      "except m.PackageNotFoundError: print()\n";
  const auto answer = captured_output(*python, {name, "-c", script}, kPythonTimeout);
  if (!answer) {
    findings.push_back({Kind::kNote, "Python", *python + " does not run, or is older than 3.8"});
    return;
  }
  std::istringstream lines(*answer);
  std::string version;
  std::string torch;
  std::getline(lines, version);
  std::getline(lines, torch);
  findings.push_back({Kind::kGood, "Python", version + ", " + *python});
  findings.push_back({torch.empty() ? Kind::kNote : Kind::kGood, "Python's torch",
                      torch.empty() ? "none (C++ programs do not need it)" : torch});
}

Finding check_debugger() {
  const auto gdb = executable_in_path("gdb");
  if (gdb) return {Kind::kGood, "debugger", *gdb};
  return {Kind::kNote, "debugger", "gdb was not found: --debug needs it"};
}

Finding check_store() {
  try {
    EventLoop loop;
    StderrMessages messages;
    const store::StoreServer server(loop, messages, {});
    if (const std::string problem = loopback_problem(); !problem.empty()) return {Kind::kProblem, "store", problem};
    return {Kind::kGood, "store", "can listen on 127.0.0.1 (port " + std::to_string(server.port()) + " was free)"};
  } catch (const LaunchError& error) {
    return {Kind::kProblem, "store", error.what()};
  }
}

Finding check_secrets() {
  if (control::has_secrets()) return {Kind::kGood, "secrets", "--rdzv_secret_file works (libsodium is built in)"};
  return {Kind::kNote, "secrets", "built without libsodium: no --rdzv_secret_file"};
}

Finding check_temporary_folder() {
  try {
    const TemporaryFolder folder;
    folder.make();
    return {Kind::kGood, "temporary files", folder.path().substr(0, folder.path().rfind('/'))};
  } catch (const LaunchError& error) {
    return {Kind::kProblem, "temporary files", error.what()};
  }
}

}  // namespace

std::vector<Finding> check_machine() {
  std::vector<Finding> findings = {check_build(),
                                   check_kernel(),
                                   check_pidfd(),
                                   check_subreaper(),
                                   check_cgroup(),
                                   check_seccomp(),
                                   check_terminals(),
                                   check_limit("open files", RLIMIT_NOFILE),
                                   check_limit("processes", RLIMIT_NPROC),
                                   {Kind::kGood, "usable CPUs", std::to_string(usable_cpus())},
                                   check_gpus()};
  check_python(findings);
  findings.push_back(check_debugger());
  findings.push_back(check_temporary_folder());
  findings.push_back(check_store());
  findings.push_back(check_secrets());
  return findings;
}

std::string finding_lines(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    std::string line = finding.kind == Kind::kGood   ? "ok       "
                       : finding.kind == Kind::kNote ? "note     "
                                                     : "PROBLEM  ";
    line += finding.what + ": ";
    for (const char c : finding.answer) {
      line += c;
      if (c == '\n') line += "             ";
    }
    text += line + "\n";
  }
  return text;
}

std::string to_text(const std::vector<Finding>& findings) {
  return finding_lines(findings) + (can_run_jobs(findings) ? "A job can run.\n" : "No job can run.\n");
}

bool can_run_jobs(const std::vector<Finding>& findings) {
  return std::none_of(findings.begin(), findings.end(),
                      [](const Finding& finding) { return finding.kind == Kind::kProblem; });
}

}  // namespace launcher
