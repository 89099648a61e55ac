// One command for several hosts: the ddprun that the user started. It connects to the others, sends them the job,
// prints their output, and ends with them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/signals.h"
#include "launcher/plan/job_nodes.h"
#include "launcher/plan/options.h"
#include "launcher/remote/console.h"
#include "launcher/remote/host_check.h"
#include "launcher/remote/host_connections.h"

namespace launcher::remote {

class Session {
 public:
  // Throws LaunchError for errors that can be detected before anything is started.
  Session(const Options& options, const std::vector<JobNode>& nodes);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // Runs the job, or with --check asks the hosts whether it could run. Returns the exit status.
  int run();

 private:
  void on_signals();
  void on_stop_signal(int number);
  void suspend();
  void on_frame(Frame frame);
  void on_output(HostState& host, std::string_view bytes);
  void on_ended(HostState& host, std::string_view bytes);
  void on_unreachable(const NamedHost& named, const std::string& why, bool is_direct);
  void on_lost(const NamedHost& named, const std::string& why);
  void on_timeout();
  void begin_when_all_answered();
  void send_amount(Kind kind, std::uint32_t host, std::uint32_t amount);
  void begin();
  void start_input();
  // Asks all parts to end, and gives them up when they do not.
  void stop(int signal);
  void note_status(int status);
  void give_up_after(EventLoop::Clock::duration time);
  bool is_over() const;
  int finish();
  void write_all();
  void close_connections();

  const Options& options_;
  const std::vector<JobNode>& nodes_;
  EventLoop loop_;
  SignalSource signals_;
  Console console_;
  HostStates hosts_;
  HostConnections connections_;
  std::optional<HostCheck> check_;  // set for --check: then no job is started
  std::optional<InputFeed> input_;
  bool has_begun_ = false;
  bool is_stopping_ = false;
  bool gives_up_ = false;
  bool is_output_lost_ = false;
  bool must_end_now_ = false;  // the process must not wait for anything more
  int status_ = 0;
  std::optional<EventLoop::Clock::time_point> first_interrupt_;
  std::optional<EventLoop::Clock::time_point> kill_time_;
  std::optional<EventLoop::Clock::time_point> timed_out_at_;  // --timeout expired
  EventLoop::Timer give_up_timer_{loop_};
};

}  // namespace launcher::remote
