#include "launcher/os/terminal/live_stream.h"

#include <chrono>

namespace launcher {
namespace {

using namespace std::chrono_literals;

// Between "down" and "up again" of a program that draws several bars, which may be in different writes.
constexpr auto kSettleTime = 50ms;

}  // namespace

void LiveStream::feed(std::string_view bytes) {
  lines_.feed(bytes, finished_);
  cancel_timer();
  if (lines_.is_waiting()) {
    timer_ = loop_.call_at(EventLoop::Clock::now() + kSettleTime, [this] {
      timer_.reset();
      lines_.settle(finished_);
      show();
    });
  }
  show();
}

void LiveStream::finish() {
  cancel_timer();
  lines_.finish(finished_);
  show();
}

void LiveStream::show() {
  if (finished_.empty()) {
    display_.rows_changed();
  } else {
    display_.print(number_, finished_);
    finished_.clear();
  }
}

void LiveStream::cancel_timer() {
  if (timer_) loop_.cancel(*timer_);
  timer_.reset();
}

}  // namespace launcher
