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
  timer_.cancel();
  if (lines_.is_waiting()) {
    timer_.start_in(kSettleTime, [this] {
      lines_.settle(finished_);
      show();
    });
  }
  show();
}

void LiveStream::finish() {
  timer_.cancel();
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

}  // namespace launcher
