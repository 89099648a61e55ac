// Writes lines to one of ddprun's own output descriptors without ever blocking the launcher.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "launcher/os/system/event_loop.h"
#include "launcher/os/system/non_blocking_output.h"

namespace launcher {

class StreamWriter {
 public:
  // If so many bytes wait for a slow reader, no more should be added.
  static constexpr std::size_t kFull = 1 << 20;

  // Calls `on_space_available` when there is room again, and when the stream has failed.
  StreamWriter(EventLoop& loop, int fd, std::function<void()> on_space_available);
  ~StreamWriter();
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // Returns the buffer to which lines of `source` can be appended (any number that identifies the writer); call flush()
  // afterwards. If another source's line is incomplete, a new line is begun first.
  std::string& lines_of(int source);
  void flush();

  bool is_full() const { return waiting() >= kFull; }
  bool is_empty() const { return waiting() == 0; }
  // The errno of the write that failed; 0 before. EPIPE means that the reader has closed its end.
  int error() const { return error_; }
  EventLoop::Clock::time_point last_progress() const { return last_progress_; }
  // Drops the bytes that wait, and returns their number.
  std::size_t drop_all();

 private:
  std::size_t waiting() const { return buffer_.size() - written_; }
  void watch(bool on);
  void fail(int error);
  void clear();

  EventLoop& loop_;
  NonBlockingOutput output_;
  std::function<void()> on_space_available_;
  std::string buffer_;
  std::size_t written_ = 0;
  int last_source_ = -1;
  char last_byte_ = '\n';
  char last_taken_ = '\n';  // the last byte that the reader has received
  bool watched_ = false;
  int error_ = 0;
  EventLoop::Clock::time_point last_progress_{};
};

// Whether both descriptors refer to the same file, pipe or terminal.
bool are_same_file(int a, int b);

}  // namespace launcher
