// ddprun's own lines while the ranks write to its output themselves: they wait for a slow reader without stopping
// ddprun.
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/messages.h"
#include "launcher/os/system/stream_writer.h"

namespace launcher {

class QueuedMessages : public Messages {
 public:
  explicit QueuedMessages(EventLoop& loop);

  void print(std::string_view line) override;
  void print_lines(std::string_view lines) override;

  // Returns when all is written or `give_up` says so: how many bytes were dropped.
  std::size_t finish(const std::function<bool()>& give_up);
  // When the reader last took something.
  EventLoop::Clock::time_point last_progress() const { return writer_.last_progress(); }

 private:
  EventLoop& loop_;
  StreamWriter writer_;
  std::size_t dropped_ = 0;
};

}  // namespace launcher
