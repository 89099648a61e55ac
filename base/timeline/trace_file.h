// A timeline's file while it grows. After each flush() it is complete, valid JSON, so it can be opened while it is
// written, or after all processes were killed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ddp::detail {

class TraceFile {
 public:
  // `about`: a JSON object that says where the events come from. An existing file is overwritten. Throws
  // std::runtime_error, without the path, when the file cannot be written, another process writes it, or this process's
  // own output goes there; then it is as it was.
  TraceFile(std::string path, std::string_view about);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // One event, or several lines with ",\n" between them; in the file at the next flush().
  void add(std::string_view lines);
  // A JSON object that is written after the events; the last one set is used.
  void set_totals(std::string totals) { totals_ = std::move(totals); }
  // Does nothing after an error; the file then ends where it was last complete.
  void flush();

  // Flushes, and closes the file until the next resume(), so that it can be moved or written by another process. Events
  // that are added until then are written by the first flush() after resume().
  void rest();
  // Opens the file again. Returns false if the file is missing or has changed.
  bool resume();

  // Device and inode.
  using Identity = std::pair<std::uint64_t, std::uint64_t>;
  Identity identity() const { return identity_; }
  // The current path of the file, or its path when it was closed: it may have been renamed.
  std::string place() const;
  std::size_t waiting() const { return buffer_.size(); }
  const std::string& path() const { return path_; }
  // The error after which nothing more is written, such as "No space left on device"; empty if there was no error.
  const std::string& problem() const { return problem_; }

 private:
  std::string tail() const;
  // Returns how many bytes were written; with fewer than all, there is a problem.
  std::size_t write_at(std::uint64_t place, std::string_view text);
  void write_out();
  void let_go();
  void look();
  void end_where_room_ends(std::size_t written);

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

// If the writer of a file was killed while it wrote an event, cuts the file after its last complete event. Does nothing
// with a file that is complete, that a process still writes, or that is not a timeline of ddprun.
void repair_trace_file(const std::string& path) noexcept;

}  // namespace ddp::detail
