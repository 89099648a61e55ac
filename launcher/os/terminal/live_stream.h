// One rank's stream on a LiveDisplay.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/terminal/character_width.h"
#include "launcher/os/terminal/live_display.h"
#include "launcher/os/terminal/live_lines.h"

namespace launcher {

class LiveStream {
 public:
  // `number` tells streams apart. All references must outlive it.
  LiveStream(EventLoop& loop, LiveDisplay& display, const CharacterWidth& widths, int number)
      : loop_(loop), display_(display), lines_(widths), number_(number) {}
  ~LiveStream() { timer_.cancel(); }
  LiveStream(const LiveStream&) = delete;
  LiveStream& operator=(const LiveStream&) = delete;

  void set_prefix(std::string prefix) { lines_.set_prefix(std::move(prefix)); }
  void feed(std::string_view bytes);
  // The rank's output has ended: what it was redrawing stays as it is, above the rows of others.
  void finish();
  const LiveDisplay& display() const { return display_; }
  std::vector<ShownRow> rows(std::size_t columns) const { return lines_.rows(columns); }

 private:
  void show();

  EventLoop& loop_;
  LiveDisplay& display_;
  LiveLines lines_;
  int number_;
  std::string finished_;
  EventLoop::Timer timer_{loop_};
};

}  // namespace launcher
