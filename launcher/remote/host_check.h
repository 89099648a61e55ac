// --check of several hosts: what their ddpruns find out, and how far their clocks are apart.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/remote/host_states.h"

namespace launcher::remote {

struct CheckReport {
  std::string text{};
  bool can_run = false;
};

class HostCheck {
 public:
  // `send` is called for what the hosts are asked.
  HostCheck(std::size_t hosts, std::function<void(Frame)> send);

  void ask_clock(std::uint32_t host);
  void on_clock(HostState& host, std::string_view bytes);
  void on_output(std::uint32_t host, std::uint32_t stream, std::string_view bytes);
  CheckReport report(const HostStates& hosts) const;

 private:
  std::vector<std::string> texts_;  // by host
  std::function<void(Frame)> send_;
};

}  // namespace launcher::remote
