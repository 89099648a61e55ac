// The connections that one ddprun of several has to others: directly to some hosts, and by way of these to the rest.
#pragma once

#include <signal.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "launcher/remote/link.h"
#include "launcher/remote/wire.h"

namespace launcher::remote {

// Who connects to whom when there are more hosts than one ddprun opens connections to.
// The hosts as at most `fanout` branches, as equal as can be: of each the first host is connected to, and reaches the
// others. Those that need no ssh are branches of their own besides.
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
