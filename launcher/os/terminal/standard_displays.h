// The live displays of ddprun's standard output and error, where these are terminals.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/stream_writer.h"
#include "launcher/os/terminal/live_display.h"
#include "launcher/os/terminal/live_lines.h"

namespace launcher {

class StandardDisplays {
 public:
  // The rows to be shown at the bottom of `display`, at most `columns` wide.
  using RowsOf = std::function<std::vector<ShownRow>(const LiveDisplay* display, std::size_t columns)>;

  // `error` is null when standard error is the same file as standard output: then both share a display. `own_group`:
  // the process group that the terminal knows. The references must outlive this.
  StandardDisplays(EventLoop& loop, StreamWriter& output, StreamWriter* error, pid_t own_group, const RowsOf& rows_of);
  StandardDisplays(const StandardDisplays&) = delete;
  StandardDisplays& operator=(const StandardDisplays&) = delete;

  // Null: no terminal.
  LiveDisplay* output() const { return output_.get(); }
  LiveDisplay* error() const { return error_; }
  void for_each(const std::function<void(LiveDisplay&)>& action) const;

 private:
  std::unique_ptr<LiveDisplay> output_;
  std::unique_ptr<LiveDisplay> own_error_;
  LiveDisplay* error_ = nullptr;
};

}  // namespace launcher
