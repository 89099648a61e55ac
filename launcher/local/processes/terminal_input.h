// Passes the input of the terminal to a pipe. The ranks are not in the terminal's foreground process group, so they may
// not read from it themselves.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

// Lends ddprun's terminal to a rank that reads it: during that time the rank's process group is in the foreground.
class ForegroundTerminal {
 public:
  ForegroundTerminal() = default;
  ~ForegroundTerminal() { take_back(); }
  ForegroundTerminal(const ForegroundTerminal&) = delete;
  ForegroundTerminal& operator=(const ForegroundTerminal&) = delete;

  // Does nothing when `owner` is not in the foreground; then the rank is a background job like any other.
  void hand_foreground_to(pid_t group, pid_t owner);
  void take_back();

 private:
  pid_t owner_ = 0;  // 0: the terminal is not lent
};

class TerminalInput {
 public:
  TerminalInput(EventLoop& loop, UniqueFd pipe);
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  // Call it when ddprun continues after it was suspended or in the background.
  void resume();

 private:
  void read_terminal();
  void wait_for_foreground();
  void write_pipe();
  void watch_terminal(bool on);
  void watch_pipe(bool on);
  void finish();

  EventLoop& loop_;
  UniqueFd pipe_;
  std::string pending_;  // read, but not written to the pipe yet
  EventLoop::Timer foreground_timer_{loop_};
  bool terminal_watched_ = false;
  bool pipe_watched_ = false;
};

}  // namespace launcher
