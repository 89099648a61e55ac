#include "tests/support/child_process.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <random>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <utility>

extern char** environ;

namespace ddp::test {
namespace {

void check(bool good, const char* what) {
  if (!good) throw std::system_error(errno, std::generic_category(), what);
}

bool belongs_to_a_launcher(std::string_view variable) {
  const std::string_view name = variable.substr(0, variable.find('='));
  for (const std::string_view known :
       {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
        "ROLE_WORLD_SIZE", "ROLE_NAME", "MASTER_ADDR", "MASTER_PORT"}) {
    if (name == known) return true;
  }
  for (const std::string_view prefix : {"TORCHELASTIC_", "OMPI_", "PMI_", "MPI_", "SLURM_"}) {
    if (name.starts_with(prefix)) return true;
  }
  return false;
}

std::vector<std::string> environment_of(const Command& command) {
  std::vector<std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view variable = *entry;
    const std::string name(variable.substr(0, variable.find('=')));
    if (!belongs_to_a_launcher(variable) && !command.environment.contains(name)) variables.emplace_back(variable);
  }
  for (const auto& [name, value] : command.environment) variables.push_back(name + "=" + value);
  return variables;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

std::string content(int file) {
  const off_t size = lseek(file, 0, SEEK_END);
  check(size >= 0, "lseek");
  std::string text(static_cast<size_t>(size), '\0');
  check(pread(file, text.data(), text.size(), 0) == size, "pread");
  return text;
}

}  // namespace

ChildProcess::ChildProcess(const Command& command)
    : output_(memfd_create("output", MFD_CLOEXEC)),
      errors_(memfd_create("errors", MFD_CLOEXEC)),
      started_(std::chrono::steady_clock::now()) {
  check(output_ >= 0 && errors_ >= 0, "memfd_create");
  // Ranks under a launcher share the file: without this one may overwrite what another has just written.
  check(fcntl(output_, F_SETFL, O_APPEND) == 0 && fcntl(errors_, F_SETFL, O_APPEND) == 0, "fcntl");
  std::vector<std::string> arguments = command.arguments;
  std::vector<std::string> environment = environment_of(command);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", 0, 0);
  posix_spawn_file_actions_adddup2(&actions, output_, STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, errors_, STDERR_FILENO);
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int error = posix_spawnp(&pid_, arguments.at(0).c_str(), &actions, &attributes, pointers(arguments).data(),
                                 pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error != 0) throw std::system_error(error, std::generic_category(), "cannot start " + arguments[0]);
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(-pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
  if (errors_ >= 0) close(errors_);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      errors_(std::exchange(other.errors_, -1)),
      started_(other.started_) {}

Outcome ChildProcess::wait(std::chrono::milliseconds limit) {
  Outcome outcome;
  const int handle = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  check(handle >= 0, "pidfd_open");
  pollfd ended{.fd = handle, .events = POLLIN, .revents = 0};
  outcome.timed_out = poll(&ended, 1, static_cast<int>(limit.count())) == 0;
  close(handle);
  if (outcome.timed_out) kill(-pid_, SIGKILL);
  int status = 0;
  check(waitpid(std::exchange(pid_, -1), &status, 0) > 0, "waitpid");
  outcome.duration = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now() - started_);
  outcome.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  outcome.output = content(output_);
  outcome.errors = content(errors_);
  return outcome;
}

std::vector<Outcome> run_all(const std::vector<Command>& commands, std::chrono::milliseconds limit) {
  std::vector<ChildProcess> children;
  children.reserve(commands.size());
  for (const Command& command : commands) children.emplace_back(command);
  const auto deadline = std::chrono::steady_clock::now() + limit;
  std::vector<Outcome> outcomes;
  for (ChildProcess& child : children) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    outcomes.push_back(child.wait(std::max(left, std::chrono::milliseconds(0))));
  }
  return outcomes;
}

uint16_t free_port() {
  int lowest_given = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> lowest_given;
  check(lowest_given > 1, "/proc/sys/net/ipv4/ip_local_port_range");
  std::random_device source;
  std::uniform_int_distribution<int> ports(std::min(10000, lowest_given / 2), lowest_given - 1);
  for (int tries = 0; tries < 100; ++tries) {
    const int socket_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    check(socket_fd >= 0, "socket");
    const auto port = static_cast<uint16_t>(ports(source));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const bool bound = bind(socket_fd, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(socket_fd);
    if (bound) return port;
  }
  throw std::runtime_error("of 100 ports none is free");
}

}  // namespace ddp::test
