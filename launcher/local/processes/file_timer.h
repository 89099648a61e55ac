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

// Nothing where the line is not a request. Pure.
std::optional<TimerRequest> parse_timer_request(std::string_view line);

class FileTimer {
 public:
  // Makes the named pipe, and replaces one that no process reads. Throws LaunchError. The references must outlive this.
  FileTimer(EventLoop& loop, Messages& messages, std::string path);
  ~FileTimer();
  FileTimer(const FileTimer&) = delete;
  FileTimer& operator=(const FileTimer&) = delete;

  const std::string& path() const { return path_; }
  void forget_all();
  // Why this process was sent a signal, for the report on its failure; empty: not by a timer.
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
  std::string unfinished_{};  // the beginning of a line
  bool has_complained_ = false;
  std::map<std::pair<pid_t, std::string>, Timer> timers_;
  std::map<pid_t, std::string> reasons_;  // of the processes of this attempt that were sent a signal
  EventLoop::Timer next_{loop_};
};

// As ddprun's environment asks for it: TORCHELASTIC_ENABLE_FILE_TIMER=1, and TORCHELASTIC_TIMER_FILE for the path, else
// in `folder` ("": the one for temporary files). Null where it does not.
std::unique_ptr<FileTimer> make_file_timer(EventLoop& loop, Messages& messages, const std::string& folder);

}  // namespace launcher
