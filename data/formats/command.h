// A shell command whose output is read. POSIX, no LibTorch.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <stdexcept>
#include <string>

namespace ddp {

/// Thrown by a wait for a command when the loader has ended its pass. It is not a DataError, because the data is not at
/// fault.
class ReadStopped : public std::runtime_error {
 public:
  ReadStopped() : std::runtime_error("the loader has ended the pass") {}
};

/// Throws ReadStopped when the loader has ended the pass that the calling thread reads for.
void throw_if_stopped();

/// A command of /bin/sh in a process group of its own. The destructor ends it.
class Command {
 public:
  /// Throws DataError, which names `url`, when it cannot be started.
  Command(const std::string& text, const std::string& url);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  /// The descriptor for reading its output. The caller closes it.
  int output() const { return output_; }
  /// Waits until its output can be read or has ended. Throws ReadStopped.
  void wait_for_output() const;
  /// Waits for its end, and returns its status as waitpid() does. Throws ReadStopped. Call it once.
  int wait_for_end();

 private:
  /// Waits until a descriptor (-1: none) can be read, or the time has passed.
  void wait_for(int file, std::chrono::milliseconds most) const;

  pid_t process_ = 0;
  int output_ = -1;
  int wake_ = -1;  // an event that ends a wait
};

}  // namespace ddp
