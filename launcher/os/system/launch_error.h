// A failure of ddprun itself, before or while the job runs: one clear line for the user and the exit status to end
// with.
#pragma once

#include <stdexcept>
#include <string>

namespace launcher {

// The meaning of ddprun's exit status. A rank's own status is passed on unchanged (that of the first failure), so these
// are the values that shells and timeout(1) use in the same situations.
enum class ExitStatus : int {
  kSuccess = 0,
  kSavedAndStopped = 85,  // asked to stop, and a rank ended with this status to say that it has saved its state
  kTimeout = 124,         // --timeout or --start_timeout expired
  kLauncherError = 125,   // ddprun itself failed: bad option, port in use, no more processes
  kNotExecutable = 126,   // the program exists but cannot be executed
  kNotFound = 127,        // the program does not exist
  kSignalBase = 128,      // 128 + N: the first failing rank, or ddprun, was ended by signal N
};

constexpr int to_int(ExitStatus status) {
  return static_cast<int>(status);
}

// An errno as text, with the limit of this process that causes it: "File too large (limit on the size of files: ulimit
// -f)".
std::string error_text(int error);

// The same for an error of fork().
std::string fork_error_text(int error);

class LaunchError : public std::runtime_error {
 public:
  explicit LaunchError(const std::string& line, ExitStatus status = ExitStatus::kLauncherError)
      : std::runtime_error(line), status_(status) {}
  ExitStatus status() const { return status_; }

 private:
  ExitStatus status_;
};

}  // namespace launcher
