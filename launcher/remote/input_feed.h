// ddprun's standard input on its way to one host or to all: no more is read than the slowest of them takes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launcher/local/processes/terminal_input.h"
#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher::remote {

class InputFeed {
 public:
  // `send` gets the bytes for all of `hosts`, and an empty text for the end.
  InputFeed(EventLoop& loop, const std::vector<std::uint32_t>& hosts, std::function<void(const std::string&)> send);
  ~InputFeed();
  InputFeed(const InputFeed&) = delete;
  InputFeed& operator=(const InputFeed&) = delete;

  void taken(std::uint32_t host, std::size_t bytes);
  // That host reads no more.
  void closed(std::uint32_t host);
  // ddprun continues after having been suspended.
  void resume();

 private:
  void watch();
  void read();
  void finish();

  EventLoop& loop_;
  std::function<void(const std::string&)> send_;
  std::map<std::uint32_t, std::size_t> under_way_;  // bytes, by host
  UniqueFd typed_;                                  // what comes from a terminal
  std::optional<TerminalInput> terminal_;
  int source_;
  bool is_file_ = false;  // always ready
  bool is_watched_ = false;
  bool is_over_ = false;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher::remote
