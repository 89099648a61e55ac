// The ddprun of one node: a process below the one that has the channel, with its output, its standard input and its end
// as frames.
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
  // Starts it. `send` is called with each frame, without the host's number. Throws LaunchError when that is impossible.
  NodeProcess(EventLoop& loop, const Plan& plan, const NodeArguments& node, const sigset_t& mask,
              std::function<void(Frame)> send);
  ~NodeProcess();
  NodeProcess(const NodeProcess&) = delete;
  NodeProcess& operator=(const NodeProcess&) = delete;

  void add_credit(std::size_t stream, std::size_t bytes);
  // The part's next write fails, as in any pipeline.
  void close_output(std::size_t stream);
  void add_input(std::string_view bytes);
  void end_input();
  void signal(int number) const;
  // A child of this process has ended: perhaps this one.
  void reap();
  bool is_gone() const { return process_.pid < 0; }
  // Not on its own: then its sweeper, an orphan, ends the ranks.
  bool was_killed() const { return was_killed_; }

 private:
  struct Stream {
    UniqueFd reader{};
    std::string waiting{};
    std::size_t credit = 0;
    bool is_watched = false;
    bool is_over = false;  // its end has been reported
  };

  // False when there is nothing more now.
  bool read(std::size_t stream);
  void pass_on(std::size_t stream);
  // How much of what waits can go now, in whole lines where they fit.
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
