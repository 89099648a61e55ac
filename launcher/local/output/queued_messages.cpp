#include "launcher/local/output/queued_messages.h"

#include <unistd.h>

#include <string>
#include <utility>

#include "launcher/os/system/utf8.h"

namespace launcher {

QueuedMessages::QueuedMessages(EventLoop& loop) : loop_(loop), writer_(loop, STDERR_FILENO, [] {}) {}

void QueuedMessages::print(std::string_view line) {
  print_lines(std::string("ddprun: ").append(printable(line)).append("\n"));
}

void QueuedMessages::print_lines(std::string_view lines) {
  if (writer_.is_full()) {
    dropped_ += lines.size();
    return;
  }
  writer_.lines_of(0).append(lines);
  writer_.flush();
}

std::size_t QueuedMessages::finish(const std::function<bool()>& give_up) {
  while (!writer_.is_empty() && !give_up()) loop_.run_once();
  return std::exchange(dropped_, 0) + writer_.drop_all();
}

}  // namespace launcher
