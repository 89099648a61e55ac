// Runs --on_hang_command when ranks hang.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>

#include "launcher/observe/watch/findings.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"

namespace launcher {

class HangCommand {
 public:
  // Both must outlive this.
  HangCommand(EventLoop& loop, Messages& messages) : loop_(loop), messages_(messages) {}

  // Runs `command` in a shell. Calls `done` when it has ended or was killed after 30 s, or at once when it cannot be
  // started. The caller must reap the process.
  void run(const std::string& command, const Hang& hang, const std::string& job, std::function<void()> done);

 private:
  void wait(EventLoop::Clock::time_point deadline);

  EventLoop& loop_;
  Messages& messages_;
  pid_t pid_ = 0;
  std::function<void()> done_;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
