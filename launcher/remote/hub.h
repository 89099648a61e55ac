// The connections that one ddprun of several has to others: directly to some hosts, and by way of these to the rest.
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

class Link {
 public:
  struct Callbacks {
    std::function<void(Frame)> on_frame;
    // No connection was made, and why. Called once, and then nothing else.
    std::function<void(const std::string& why)> on_unreachable;
    // It was made, and broke. Called once, and then nothing else.
    std::function<void(const std::string& why)> on_lost;
    // A line that ssh writes to standard error while there is a connection.
    std::function<void(const std::string& line)> on_line;
  };

  // To the first of `hosts`, which connects to the others. `mask`: the signals of the process that is started.
  Link(EventLoop& loop, const SshSettings& ssh, std::vector<NamedHost> hosts, const sigset_t& mask,
       Callbacks callbacks);
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  const std::vector<NamedHost>& hosts() const { return hosts_; }
  void send(const Frame& frame) { channel_->send(frame); }
  void send_bytes(std::string_view bytes) { channel_->send_bytes(bytes); }
  bool is_open() const { return state_ == State::kOpen; }
  // The other end ends what it has started, and then itself.
  void close();
  void kill();
  // A child of this process has ended: perhaps this one.
  void reap();
  bool is_gone() const { return process_.pid < 0; }

 private:
  enum class State { kConnecting, kOpen, kBroken, kClosing };
  std::size_t on_preamble(std::string_view bytes);
  void on_end();
  void tick();
  // False when there is nothing more now.
  bool read_errors();
  void show_errors();
  void conclude();
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
  std::string errors_;  // that were not shown
  bool is_late_ = false;
  bool is_at_end_ = false;
  EventLoop::Clock::time_point begin_ = EventLoop::Clock::now();
  EventLoop::Clock::time_point asking_since_ = begin_;  // this process did not stand still itself
  std::optional<EventLoop::Clock::time_point> next_tick_;
  EventLoop::Timer timer_{loop_};
  EventLoop::Timer end_timer_{loop_};
};

// Who connects to whom when there are more hosts than one ddprun opens connections to.
// The hosts as at most `fanout` branches, as equal as can be: of each the first host is connected to, and reaches the
// others. Those that need no ssh are additional branches.
std::vector<std::vector<NamedHost>> branches(const std::vector<NamedHost>& hosts, std::size_t fanout);

class Hub {
 public:
  struct Callbacks {
    std::function<void(Frame)> on_frame;
    std::function<void(const NamedHost& host, const std::string& why)> on_unreachable;
    // Each host that cannot be reached any more.
    std::function<void(const NamedHost& host, const std::string& why)> on_lost;
    std::function<void(const std::string& line)> on_line;
  };

  // `mask`: the signals of the processes that are started.
  Hub(EventLoop& loop, SshSettings ssh, const sigset_t& mask, Callbacks callbacks);

  // Makes connections, as a tree where there are more hosts than `ssh.fanout`. Where one cannot be made, the hosts
  // that were to be reached by it are connected to nevertheless.
  void connect(const std::vector<NamedHost>& hosts);
  void send(const Frame& frame);
  // Children of this process have ended.
  void reap();
  // All hosts end what they have started.
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
  std::vector<std::unique_ptr<Link>> links_;  // broken ones too
  std::map<std::uint32_t, Link*> ways_;
  bool is_closed_ = false;
};

}  // namespace launcher::remote
