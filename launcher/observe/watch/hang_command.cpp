#include "launcher/observe/watch/hang_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <utility>
#include <vector>

#include "launcher/os/system/utf8.h"

namespace launcher {
namespace {

using namespace std::chrono_literals;

constexpr auto kCommandTimeout = 30s;
constexpr auto kCommandPause = 20ms;

std::vector<std::string> environment_with(const Hang& hang, const std::string& job) {
  std::vector<std::string> entries;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with("DDPRUN_HANG_")) entries.emplace_back(*entry);
  }
  std::string ranks;
  for (const int rank : hang.verdict.culprits) ranks += (ranks.empty() ? "" : " ") + std::to_string(rank);
  const auto since = std::chrono::duration_cast<std::chrono::seconds>(hang.since.time_since_epoch()).count();
  entries.push_back("DDPRUN_HANG_JOB=" + job);
  entries.push_back("DDPRUN_HANG_KIND=" + std::string(name_of(hang.verdict.kind)));
  entries.push_back("DDPRUN_HANG_RANKS=" + ranks);
  entries.push_back("DDPRUN_HANG_SINCE=" + std::to_string(since));
  entries.push_back("DDPRUN_HANG_MESSAGE=" + printable(hang.verdict.sentence));
  return entries;
}

// The command gets an empty signal mask: ddprun blocks the signals that it reads from a descriptor.
int spawn_shell(const std::string& command, std::vector<std::string> environment, pid_t& pid) {
  std::vector<char*> variables;
  for (std::string& entry : environment) variables.push_back(entry.data());
  variables.push_back(nullptr);
  std::string words = command;
  std::string shell = "sh";
  std::string option = "-c";
  const std::vector<char*> arguments{shell.data(), option.data(), words.data(), nullptr};
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  sigset_t signals;
  ::sigemptyset(&signals);
  ::posix_spawnattr_setsigmask(&attributes, &signals);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE}) ::sigaddset(&signals, number);
  ::posix_spawnattr_setsigdefault(&attributes, &signals);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  const int error = ::posix_spawn(&pid, "/bin/sh", &actions, &attributes, arguments.data(), variables.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

void HangCommand::run(const std::string& command, const Hang& hang, const std::string& job,
                      std::function<void()> done) {
  done_ = std::move(done);
  if (const int error = spawn_shell(command, environment_with(hang, job), pid_); error != 0) {
    messages_.print("--on_hang_command cannot be started: " + std::string(std::strerror(error)));
    return std::exchange(done_, nullptr)();
  }
  wait(EventLoop::Clock::now() + kCommandTimeout);
}

void HangCommand::wait(EventLoop::Clock::time_point deadline) {
  const bool runs = ::kill(pid_, 0) == 0;
  const bool is_late = EventLoop::Clock::now() >= deadline;
  if (runs && !is_late) {
    timer_.start_in(kCommandPause, [this, deadline] { wait(deadline); });
    return;
  }
  if (runs) {
    ::kill(-pid_, SIGKILL);
    messages_.print("--on_hang_command has not ended within 30 s and was killed");
  }
  std::exchange(done_, nullptr)();
}

}  // namespace launcher
