// A failure of ddprun itself, before or while the job runs: one clear line for the user and the exit status to end
// with.
#pragma once

#include <stdexcept>
#include <string>

#include "launcher/os/system/exit_status.h"

namespace launcher {

class LaunchError : public std::runtime_error {
 public:
  explicit LaunchError(const std::string& line, ExitStatus status = ExitStatus::kLauncherError)
      : std::runtime_error(line), status_(status) {}
  ExitStatus status() const { return status_; }

 private:
  ExitStatus status_;
};

}  // namespace launcher
