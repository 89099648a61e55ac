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

  // `command` is for the shell. `done` is called when it has ended, or after 30 s, when it is killed; at once where
  // it cannot be started. Whoever calls reaps its process.
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
