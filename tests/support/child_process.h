// Programs that a test starts: their environment, output and end. Nothing outlives the test. No LibTorch here.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace ddp::test {

/// What to start. The child gets this process's environment without the variables of any launcher, then `environment`
/// on top.
struct Command {
  std::vector<std::string> arguments{};  ///< the program's path first
  std::map<std::string, std::string> environment{};
};

/// How a program ended.
struct Outcome {
  int status = 0;  ///< exit status, or 128 + signal as shells show it
  bool timed_out = false;
  std::string output{};  ///< standard output
  std::string errors{};  ///< standard error
  std::chrono::milliseconds duration{};
};

/// A running program, in a process group of its own that the destructor kills. posix_spawn, no fork.
class ChildProcess {
 public:
  explicit ChildProcess(const Command& command);
  ~ChildProcess();
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;

  /// Waits for the end; after `limit` kills the program's whole process group.
  Outcome wait(std::chrono::milliseconds limit);

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  int errors_ = -1;
  std::chrono::steady_clock::time_point started_;
};

/// Starts all commands at once and waits for all.
std::vector<Outcome> run_all(const std::vector<Command>& commands, std::chrono::milliseconds limit);

/// A TCP port on loopback that nobody has right now, below those that the kernel gives to whoever asks for none (see
/// free_port.py).
uint16_t free_port();

}  // namespace ddp::test
