// A timeline file that grows. After each flush() it is complete, valid JSON, so it can be opened while it is being
// written, or after all processes were killed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::detail {

class TraceFile {
 public:
  // `about`: a JSON object that describes where the events come from. An existing file is overwritten. Throws
  // std::runtime_error (without the path in its text) if the file cannot be written, if another process is writing it,
  // or if it is the standard output or error of this process. The file is then unchanged.
  TraceFile(std::string path, std::string_view about);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Adds one event, or several lines separated by ",\n". They are written to the file by the next flush().
  void add(std::string_view lines);
  // Sets a JSON object that is written after the events. Each call replaces the previous object.
  void set_totals(std::string totals) { totals_ = std::move(totals); }
  // After an error it does nothing; the file then ends where it was last complete.
  void flush();

  // Flushes and closes the file until the next resume(), so that it can be moved, or written by another process. Events
  // added in the meantime are written by the first flush() after resume().
  void suspend();
  // Opens the file again. Returns false if the file is missing or has changed.
  bool resume();

  // The device and inode numbers.
  using Identity = std::pair<std::uint64_t, std::uint64_t>;
  Identity identity() const { return identity_; }
  // The current path of the file, or its path when it was closed: it may have been renamed since it was created.
  std::string place() const;
  std::size_t waiting() const { return buffer_.size(); }
  const std::string& path() const { return path_; }
  // The error that stopped all writing, such as "No space left on device"; empty if there was no error.
  const std::string& problem() const { return problem_; }

 private:
  std::string tail() const;
  // Returns the number of bytes written. If it is less than the size of `text`, problem_ is set.
  std::size_t write_at(std::uint64_t place, std::string_view text);
  void write_out();
  void close_file();
  void check_unchanged();
  void end_after_partial_write(std::size_t written);

  std::string path_;
  int fd_ = -1;
  Identity identity_{};
  std::string place_;
  std::uint64_t size_ = 0;  // without the tail
  std::string last_tail_;
  std::string buffer_;
  std::string totals_ = "{}";
  std::string problem_;
  bool has_events_ = false;
};

// If the writer of a file was killed while it wrote an event, truncates the file after its last complete event. Does
// nothing if the file is complete, if a process is still writing it, or if it is not a ddprun timeline.
void repair_trace_file(const std::string& path) noexcept;

}  // namespace ddp::detail
