// The ddprun of one node, as a child of the process with the channel. Its output, its standard input and its end are
// sent as frames.
#pragma once

#include <signal.h>

#include <array>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"
#include "launcher/remote/child_process.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

class NodeProcess {
 public:
  // Starts the process. Calls `send` with each frame, without the host's number. Throws LaunchError when that is
  // impossible.
  NodeProcess(EventLoop& loop, const Plan& plan, const NodeArguments& node, const sigset_t& mask,
              std::function<void(Frame)> send);
  ~NodeProcess();
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  void add_credit(std::size_t stream, std::size_t bytes);
  // Closes the stream, so that the part's next write fails, as in any pipeline.
  void close_output(std::size_t stream);
  void add_input(std::string_view bytes);
  void end_input();
  void signal(int number) const;
  // Call it when a child of this process has ended; it may be this one.
  void reap();
  bool is_gone() const { return process_.pid < 0; }
  // True when it was killed: then its sweeper, now an orphan, ends the ranks.
  bool was_killed() const { return was_killed_; }

 private:
  struct Stream {
    UniqueFd reader{};
    std::string waiting{};
    std::size_t credit = 0;
    bool is_watched = false;
    bool is_over = false;  // its end has been reported
  };

  // Returns false when there is nothing more to read now.
  bool read(std::size_t stream);
  void pass_on(std::size_t stream);
  // How many of the waiting bytes can be sent now; whole lines if they fit.
  std::size_t sendable(const Stream& stream) const;
  void watch(std::size_t stream);
  void write_input();
  void close_input();
  void watch_input(bool on);

  EventLoop& loop_;
  std::function<void(Frame)> send_;
  const std::size_t window_;
  const bool keeps_lines_;
  ChildProcess process_;
  std::array<Stream, 2> streams_;  // standard output and standard error
  std::string input_;
  bool was_killed_ = false;
  bool is_input_over_ = false;
  bool is_input_watched_ = false;
};

}  // namespace launcher::remote
