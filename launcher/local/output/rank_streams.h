// The standard input, output and error of the ranks on this node, as the options define them.
#pragma once

#include <unistd.h>

#include <array>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "launcher/local/output/input_copies.h"
#include "launcher/local/output/output_relay.h"
#include "launcher/local/output/stream_route.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/line.h"
#include "launcher/os/system/stream_writer.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/os/system/utf8.h"
#include "launcher/plan/log_layout.h"
#include "launcher/plan/options.h"
#include "launcher/plan/outcome/job_end.h"
#include "launcher/plan/worker_environment.h"

namespace launcher {

class QueuedMessages : public Messages {
 public:
  explicit QueuedMessages(EventLoop& loop) : loop_(loop), writer_(loop, STDERR_FILENO, [] {}) {}

  void print(std::string_view line) override {
    print_lines(std::string("ddprun: ").append(printable(line)).append("\n"));
  }
  void print_lines(std::string_view lines) override {
    if (writer_.is_full()) {
      dropped_ += lines.size();
      return;
    }
    writer_.lines_of(0).append(lines);
    writer_.flush();
  }

  // Returns the number of dropped bytes, when everything is written or `give_up` returns true.
  std::size_t finish(const std::function<bool()>& give_up) {
    while (!writer_.is_empty() && !give_up()) loop_.run_once();
    return std::exchange(dropped_, 0) + writer_.drop_all();
  }
  EventLoop::Clock::time_point last_progress() const { return writer_.last_progress(); }

 private:
  EventLoop& loop_;
  StreamWriter writer_;
  std::size_t dropped_ = 0;
};

struct RankDescriptors {
  int input = -1;  // -1: ddprun's own standard input
  int output = -1;
  int error = -1;
  std::array<UniqueFd, 3> owned{};  // to be closed once the rank has been started
};

class RankStreams {
 public:
  // Makes the job's log folder. `error_folder` is for error files when there is no log folder. `typed` is the pipe with
  // the input of ddprun's terminal, or -1 when standard input is not a terminal. `own_group` is ddprun's process group
  // as the terminal has it. Throws LaunchError when a folder cannot be written, or when the outputs need more
  // descriptors than the limit allows.
  RankStreams(EventLoop& loop, const Options& options, const std::string& run_id, std::string error_folder, int typed,
              pid_t own_group);
  ~RankStreams();
  RankStreams(const RankStreams&) = delete;
  RankStreams& operator=(const RankStreams&) = delete;

  // For ddprun's own lines. They are printed after the ranks' output that has been passed on so far.
  Messages& messages();
  const LogLayout& layout() const { return layout_; }

  void begin_attempt(int attempt, int world_size);
  // Throws LaunchError when one of the rank's files or pipes cannot be made.
  RankDescriptors add_rank(const RankPlace& place);
  // Begins to read. Call it when all ranks of the attempt have been added and forked.
  void all_added();
  // To be called when no process can write any more. The reader may be slow: `give_up`, which is called repeatedly,
  // ends the wait. Output that was not read by then is dropped, and counted in problem().
  void finish_attempt(const std::function<bool()>& give_up);
  EventLoop::Clock::time_point last_progress() const;

  // Adds each failed rank's last lines and the name of its log file.
  void describe(JobEnd& end) const;
  std::string problem() const;
  void update_window_sizes();
  void suspend_display(bool suspended);

 private:
  PrefixTemplate prefix_template(const char* torchruns) const;
  int open_stream(const RankPlace& place, Stream stream, UniqueFd& owned);
  int open_input(const RankPlace& place, UniqueFd& owned);
  void remove_unused_folder() const;
  void tick();
  void watch_disk();
  void note_full_disk(int error);

  EventLoop& loop_;
  const Options& options_;
  int terminal_input_fd_;
  LogLayout layout_;
  int attempt_ = 0;
  int world_size_ = 1;
  UniqueFd null_;
  QueuedMessages own_messages_;  // used when there is no relay
  std::optional<OutputRelay> relay_;
  std::optional<InputCopies> copies_;
  std::shared_ptr<LineFilter> output_filter_;
  std::shared_ptr<LineFilter> error_filter_;
  std::string watched_folder_;  // the folder of the files that the ranks write themselves
  EventLoop::Timer disk_timer_{loop_};
  EventLoop::Timer tick_timer_{loop_};
  std::string problem_;
};

}  // namespace launcher
