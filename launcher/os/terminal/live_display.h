// One terminal on which ddprun shows its ranks: finished lines scroll past, and rows that ranks redraw stay at the
// bottom.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/stream_writer.h"
#include "launcher/os/terminal/character_width.h"
#include "launcher/os/terminal/live_lines.h"

namespace launcher {

class LiveScreen {
 public:
  // `reflows`: when the terminal becomes narrower, it wraps rows that are too long.
  explicit LiveScreen(bool reflows) : reflows_(reflows) {}

  // Appends the bytes that print `lines` (the last one may lack its newline) above, and show `rows`, each at most
  // `columns` wide, instead of the previous ones.
  void paint(std::string_view lines, std::vector<ShownRow> rows, std::size_t columns, std::string& out);
  // Moves the cursor to a new line below the rows. They remain on the screen and are not changed any more.
  void leave(std::string& out);
  // Call it when another program has written to the terminal: the cursor is on a new line.
  void forget() { painted_.clear(); }
  // True when the cursor is at the end of a line without a newline.
  bool has_unfinished_line() const { return has_unfinished_line_; }

 private:
  std::size_t height(const ShownRow& row, std::size_t columns) const;
  void go_to_first_row(std::size_t columns, std::string& out) const;
  void erase_rows(std::size_t columns, std::string& out) const;
  void repaint_in_place(const std::vector<ShownRow>& rows, std::size_t columns, std::string& out) const;

  bool reflows_;
  std::vector<ShownRow> painted_;  // the cursor is at the beginning of the last one
  std::size_t columns_ = 0;
  bool has_unfinished_line_ = false;  // a line without a newline is above
};

class LiveDisplay {
 public:
  using Rows = std::function<std::vector<ShownRow>(std::size_t columns)>;

  // `writer` writes to `terminal`; both outlive the display. Rows are shown while the process group `own_group` is in
  // the foreground there.
  LiveDisplay(EventLoop& loop, int terminal, pid_t own_group, StreamWriter& writer, Rows rows);

  // Returns false if rows cannot be redrawn: it is not a terminal, or TERM is "dumb".
  static bool is_possible(int terminal);

  // Prints lines of `source` (any number that identifies the writer) at once; the last one may lack its newline.
  void print(int source, std::string_view lines);
  // Redraws the rows soon, at most 25 times a second.
  void rows_changed();
  // Call it before ddprun is suspended: the rows remain, and the shell's prompt appears below them.
  void suspend();
  void resume();
  // Call it when no row will change any more.
  void leave();

 private:
  void paint(std::string_view lines);
  bool is_in_background() const;
  std::vector<ShownRow> fitting_rows(std::size_t columns, std::size_t height) const;

  EventLoop& loop_;
  int terminal_;
  pid_t own_group_;
  StreamWriter& writer_;
  Rows rows_;
  LiveScreen screen_;
  EventLoop::Timer timer_{loop_};
  EventLoop::Clock::time_point last_paint_{};
  int last_source_ = -1;
  bool suspended_ = false;
};

// The live displays of ddprun's standard output and error, where these are terminals.
class StandardDisplays {
 public:
  // Returns the rows at the bottom of `display`, at most `columns` wide.
  using RowsOf = std::function<std::vector<ShownRow>(const LiveDisplay* display, std::size_t columns)>;

  // `error` is null when standard error is the same file as standard output: then both share a display. `own_group` is
  // ddprun's process group as the terminal has it. The references must outlive this.
  StandardDisplays(EventLoop& loop, StreamWriter& output, StreamWriter* error, pid_t own_group, const RowsOf& rows_of);
  StandardDisplays(const StandardDisplays&) = delete;
  StandardDisplays& operator=(const StandardDisplays&) = delete;

  // Null when it is not a terminal.
  LiveDisplay* output() const { return output_.get(); }
  LiveDisplay* error() const { return error_; }
  void for_each(const std::function<void(LiveDisplay&)>& action) const;

 private:
  std::unique_ptr<LiveDisplay> output_;
  std::unique_ptr<LiveDisplay> own_error_;
  LiveDisplay* error_ = nullptr;
};

class LiveStream {
 public:
  // `number` identifies the stream. All references must outlive it.
  LiveStream(EventLoop& loop, LiveDisplay& display, const CharacterWidth& widths, int number)
      : loop_(loop), display_(display), lines_(widths), number_(number) {}
  ~LiveStream() { timer_.cancel(); }
  LiveStream(const LiveStream&) = delete;
  LiveStream& operator=(const LiveStream&) = delete;

  void set_prefix(std::string prefix) { lines_.set_prefix(std::move(prefix)); }
  void feed(std::string_view bytes);
  // The program writes a line elsewhere now, so it will not return to rows above.
  void settle();
  // The rank's output has ended: the rows that it was redrawing remain, above the rows of other ranks.
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
