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
  // Copies the data of the descriptor `source`. Other processes may share its open file description, so it is not made
  // non-blocking.
  InputCopies(EventLoop& loop, int source);
  ~InputCopies();
  InputCopies(const InputCopies&) = delete;
  InputCopies& operator=(const InputCopies&) = delete;

  UniqueFd add_reader();
  // Begins to read. Call it when all readers have been added.
  void begin();
  // Unread input is kept for the readers of another attempt.
  void close_readers();

 private:
  struct Reader {
    UniqueFd pipe;
    std::size_t written = 0;  // bytes of the current piece
    bool watched = false;
  };

  void read_source();
  void write_to(Reader& reader);
  void stop_writing(Reader& reader);
  void watch_reader(Reader& reader, bool on);
  void watch_source(bool on);
  // Reads the next piece once all readers have received the current one.
  void advance();

  EventLoop& loop_;
  int source_;
  UniqueFd own_;  // a duplicate of the caller's descriptor; a pipe is opened once more instead, non-blocking
  bool is_watchable_ = true;
  bool source_watched_ = false;
  bool at_end_ = false;
  std::string piece_;
  std::vector<Reader> readers_;
  EventLoop::Timer read_timer_{loop_};
};

}  // namespace launcher
