// Runs a shell command and reads its output. Uses POSIX, but not LibTorch.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace ddp {

/// Thrown while waiting for a command if the loader has ended its pass. It is not a DataError, because there is no
/// error in the data.
class ReadStopped : public std::runtime_error {
 public:
  ReadStopped() : std::runtime_error("the loader has ended the pass") {}
};

/// Throws ReadStopped if the loader has ended the pass that the calling thread reads for.
void throw_if_stopped();

/// A command that /bin/sh runs in a separate process group. The destructor terminates it.
class Command {
 public:
  /// Throws DataError with `url` in its message if the command cannot be started.
  Command(const std::string& text, const std::string& url);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// Returns the descriptor of its output, which the caller must close.
  int output() const { return output_; }
  /// Waits until its output can be read or has ended. Throws ReadStopped.
  void wait_for_output() const;
  /// Waits until it has ended, and returns its status in the format of waitpid(). Throws ReadStopped. May be called
  /// only once.
  int wait_for_end();

 private:
  /// Waits until a descriptor (-1: none) can be read, or until `most` has elapsed.
  void wait_for(int file, std::chrono::milliseconds most) const;

  pid_t process_ = 0;
  int output_ = -1;
  int wake_ = -1;  // an event descriptor that ends a wait
};

}  // namespace ddp
