// A timeline's file while it grows: after each flush() it is whole, valid JSON, so that the process that looks at it
// meanwhile, or after everything was killed, can open it.
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
  // Does nothing once the file has a problem, and then it ends where it was whole last.
  void flush();

  // Flushes, and lets the file go until the next resume(), so that it can be moved, or written by another one; what is
  // added meanwhile is in it at the next flush() nevertheless.
  void rest();
  // Goes on. False where the file is not there as it was left.
  bool resume();

  // Device and inode.
  using Identity = std::pair<std::uint64_t, std::uint64_t>;
  Identity identity() const { return identity_; }
  // The current path of the file, or its path when it was closed: it may have been renamed.
  std::string place() const;
  std::size_t waiting() const { return buffer_.size(); }
  const std::string& path() const { return path_; }
  // Why there is no more to come: "No space left on device"; empty while all is well.
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

// Ends a file after its last whole event, where its writer was killed in the middle of one. Does nothing with a file
// that is whole, that somebody writes, or that is not a timeline of ours.
void repair_trace_file(const std::string& path) noexcept;

}  // namespace ddp::detail
