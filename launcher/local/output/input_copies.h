// Gives every rank a copy of ddprun's standard input. The slowest reader sets the pace; nothing piles up for it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/unique_fd.h"

namespace launcher {

class InputCopies {
 public:
  // Reads what `source` reads. That may be shared with others: it is not made non-blocking.
  InputCopies(EventLoop& loop, int source);
  ~InputCopies();
  InputCopies(const InputCopies&) = delete;
  InputCopies& operator=(const InputCopies&) = delete;

  UniqueFd add_reader();
  // All readers are there: begins to read.
  void begin();
  // Unread input is kept for the readers of another attempt.
  void close_readers();

 private:
  struct Reader {
    UniqueFd pipe;
    std::size_t written = 0;  // of the piece
    bool watched = false;
  };

  void read_source();
  void write_to(Reader& reader);
  void stop_writing(Reader& reader);
  void watch_reader(Reader& reader, bool on);
  void watch_source(bool on);
  // Reads on once everybody has the piece.
  void advance();

  EventLoop& loop_;
  int source_;
  UniqueFd own_;  // a copy of the caller's; of a pipe the same one opened once more, non-blocking
  bool is_watchable_ = true;
  bool source_watched_ = false;
  bool at_end_ = false;
  std::string piece_;
  std::vector<Reader> readers_;
  EventLoop::Timer turn_{loop_};
};

}  // namespace launcher
