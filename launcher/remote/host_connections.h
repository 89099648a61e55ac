// The connections of one ddprun to others: directly to some hosts, and through these to the other hosts.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/remote/channel.h"
#include "launcher/remote/child_process.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

class BranchConnection {
 public:
  struct Callbacks {
    std::function<void(Frame)> on_frame;
    // No connection was made, for this reason. Called once; no other callback follows.
    std::function<void(const std::string& why)> on_unreachable;
    // The connection was made and then lost. Called once; no other callback follows.
    std::function<void(const std::string& why)> on_lost;
    // A line that ssh wrote to standard error while the connection exists.
    std::function<void(const std::string& line)> on_line;
  };

  // Connects to the first of `hosts`, which connects to the others. `mask`: the signal mask of the started process.
  BranchConnection(EventLoop& loop, const SshSettings& ssh, std::vector<NamedHost> hosts, const sigset_t& mask,
                   Callbacks callbacks);
  ~BranchConnection();
  BranchConnection(const BranchConnection&) = delete;
  BranchConnection& operator=(const BranchConnection&) = delete;

  const std::vector<NamedHost>& hosts() const { return hosts_; }
  void send(const Frame& frame) { channel_->send(frame); }
  void send_bytes(std::string_view bytes) { channel_->send_bytes(bytes); }
  bool is_open() const { return state_ == State::kOpen; }
  // Asks the other end to end everything that it has started, and itself.
  void close();
  void kill();
  // Call it when a child of this process has ended; it may be this one.
  void reap();
  bool is_gone() const { return process_.pid < 0; }

 private:
  enum class State { kConnecting, kOpen, kBroken, kClosing };
  std::size_t on_preamble(std::string_view bytes);
  void on_end();
  void tick();
  // Returns false when there is nothing more to read now.
  bool read_errors();
  void show_errors();
  void report_end();
  void fail(const std::string& why);
  std::string name() const { return hosts_.front().name; }

  EventLoop& loop_;
  const SshSettings ssh_;
  std::vector<NamedHost> hosts_;
  Callbacks callbacks_;
  ChildProcess process_;  // -1 once it has ended
  std::optional<siginfo_t> end_;
  std::optional<Channel> channel_;
  State state_ = State::kConnecting;
  std::string errors_;  // text from standard error that was not shown yet
  bool is_late_ = false;
  bool is_at_end_ = false;
  EventLoop::Clock::time_point begin_ = EventLoop::Clock::now();
  EventLoop::Clock::time_point asking_since_ = begin_;  // moved forward when this process itself was delayed
  std::optional<EventLoop::Clock::time_point> next_tick_;
  EventLoop::Timer timer_{loop_};
  EventLoop::Timer end_timer_{loop_};
};

// Plans the connections when there are more hosts than one ddprun connects to. Divides the hosts into at most `fanout`
// branches of nearly equal size. The first host of each branch is connected directly, and reaches the others of the
// branch. Hosts that need no ssh are additional branches.
std::vector<std::vector<NamedHost>> branches(const std::vector<NamedHost>& hosts, std::size_t fanout);

class HostConnections {
 public:
  struct Callbacks {
    std::function<void(Frame)> on_frame;
    std::function<void(const NamedHost& host, const std::string& why)> on_unreachable;
    // Called for each host that cannot be reached any more.
    std::function<void(const NamedHost& host, const std::string& why)> on_lost;
    std::function<void(const std::string& line)> on_line;
  };

  // `mask`: the signal mask of the started processes.
  HostConnections(EventLoop& loop, SshSettings ssh, const sigset_t& mask, Callbacks callbacks);

  // Connects to the hosts, as a tree if there are more than `ssh.fanout`. If the first host of a branch cannot be
  // reached, the others are connected without it.
  void connect(const std::vector<NamedHost>& hosts);
  void send(const Frame& frame);
  // Call it when children of this process have ended.
  void reap();
  // Asks all hosts to end everything that they have started.
  void close();
  void kill();
  bool is_gone() const;

 private:
  void start(const std::vector<NamedHost>& branch);
  void on_unreachable(const std::vector<NamedHost>& branch, const std::string& why);

  EventLoop& loop_;
  const SshSettings ssh_;
  const sigset_t& mask_;
  Callbacks callbacks_;
  std::vector<std::unique_ptr<BranchConnection>> branches_;  // broken ones too
  std::map<std::uint32_t, BranchConnection*> branch_by_host_;
  bool is_closed_ = false;
};

}  // namespace launcher::remote
