// Serves the timers of torch.distributed.elastic.timer.FileTimerClient, as torchrun's FileTimerServer does: ranks write
// requests into a named pipe, and a process whose timer expires is killed.
#pragma once

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/local/processes/descendants.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

struct TimerRequest {
  pid_t pid = 0;
  std::string scope{};
  double expiration = 0;  // seconds since the epoch; negative: the timer is released
  int signal = 0;         // 0 or less: nothing is killed
};

// Returns nothing if the line is not a request. Pure.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

class FileTimer {
 public:
  // Makes the named pipe. Replaces an existing pipe that no process reads. Throws LaunchError. The references must
  // outlive this.
  FileTimer(EventLoop& loop, Messages& messages, std::string path);
  ~FileTimer();
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  const std::string& path() const { return path_; }
  void forget_all();
  // Why a timer sent this process a signal, for the report on its failure; empty if no timer did.
  std::string reason_for(pid_t pid) const;

 private:
  struct Timer {
    TimerRequest request;
    ProcessIdentity process;
  };
  void on_readable();
  void take_line(std::string_view line);
  void schedule();
  void expire();
  void end_process(const Timer& timer, const std::vector<ProcessIdentity>& own);

  EventLoop& loop_;
  Messages& messages_;
  const std::string path_;
  UniqueFd pipe_;
  std::string unfinished_{};  // the first part of a line whose end has not arrived
  bool has_reported_ = false;
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
  std::map<pid_t, std::string> reasons_;  // why processes of this attempt were sent a signal
  EventLoop::Timer next_{loop_};
};

// Creates the timer server if ddprun's environment asks for it by TORCHELASTIC_ENABLE_FILE_TIMER=1, else returns null.
// The path is TORCHELASTIC_TIMER_FILE, or else a name in `folder` ("": the folder for temporary files).
std::unique_ptr<FileTimer> make_file_timer(EventLoop& loop, Messages& messages, const std::string& folder);

}  // namespace launcher
