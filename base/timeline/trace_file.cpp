#include "base/timeline/trace_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "base/block_file_size_signal.h"

namespace ddp::detail {
namespace {

// Nonblocking, so that opening a pipe without a reader fails immediately.
constexpr int kFlags = O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK;
constexpr std::string_view kHead = "{\"displayTimeUnit\":\"ms\",\"otherData\":";
constexpr std::string_view kEvents = ",\"traceEvents\":[\n";
constexpr std::string_view kTotals = "],\"ddprun\":";
constexpr std::string_view kEnd = "}\n";

[[noreturn]] void refuse(int fd, const std::string& why) {
  if (fd >= 0) ::close(fd);
  throw std::runtime_error(why);
}

// The path may refer to the program's own output, such as "/dev/stdout" when the output is redirected to a file.
bool is_own_output(const struct stat& file) {
  struct stat output {};
  return (::fstat(STDOUT_FILENO, &output) == 0 && output.st_ino == file.st_ino && output.st_dev == file.st_dev) ||
         (::fstat(STDERR_FILENO, &output) == 0 && output.st_ino == file.st_ino && output.st_dev == file.st_dev);
}

// A complete file ends with the tail, which is its last line.
bool is_whole(std::string_view bytes) {
  if (!bytes.ends_with("}}\n")) return false;
  const std::size_t newline = bytes.rfind('\n', bytes.size() - 2);
  return newline != std::string_view::npos && bytes.substr(newline + 1).starts_with(kTotals);
}

// The end of the last line that contains a complete event; 0 if no event is complete.
std::size_t end_of_events(std::string_view bytes) {
  for (std::size_t newline = bytes.rfind('\n'); newline != std::string_view::npos && newline > 0;
       newline = bytes.rfind('\n', newline - 1)) {
    if (bytes.substr(0, newline).ends_with("},")) return newline - 1;
    if (bytes.substr(0, newline).ends_with("}")) return newline;
  }
  return 0;
}

}  // namespace

TraceFile::TraceFile(std::string path, std::string_view about) : path_(std::move(path)) {
  int fd = ::open(path_.c_str(), kFlags);
  const bool is_new = fd < 0 && errno == ENOENT;
  if (is_new) fd = ::open(path_.c_str(), kFlags | O_CREAT, 0666);
  if (fd < 0) refuse(fd, std::strerror(errno));
  struct stat status {};
  if (::fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) refuse(fd, "not a regular file");
  if (::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) refuse(fd, "another job writes its timeline there");
  if (is_own_output(status)) refuse(fd, "it is the standard output or error of this process");
  fd_ = fd;
  identity_ = {status.st_dev, status.st_ino};
  const std::string head = std::string(kHead).append(about).append(kEvents);
  last_tail_ = tail();
  // Overwrites the start of the old content before truncating it. This usually needs no new disk space, so the old
  // content is lost only if the new content was written.
  if (write_at(0, head + last_tail_) == head.size() + last_tail_.size()) {
    size_ = head.size();
    if (::ftruncate(fd, static_cast<off_t>(size_ + last_tail_.size())) == 0) return;
    problem_ = std::strerror(errno);
  }
  if (is_new) ::unlink(path_.c_str());
  fd_ = -1;
  refuse(fd, problem_);
}

TraceFile::~TraceFile() {
  flush();
  if (fd_ >= 0) ::close(fd_);
}

void TraceFile::add(std::string_view lines) {
  if (!problem_.empty()) return;
  if (std::exchange(has_events_, true)) buffer_ += ",\n";
  buffer_ += lines;
}

std::string TraceFile::tail() const {
  return std::string("\n").append(kTotals).append(totals_).append(kEnd);
}

std::size_t TraceFile::write_at(std::uint64_t place, std::string_view text) {
  std::size_t written = 0;
  const BlockFileSizeSignal blocked;
  while (written < text.size()) {
    const ssize_t count =
        ::pwrite(fd_, text.data() + written, text.size() - written, static_cast<off_t>(place + written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      problem_ = std::strerror(count < 0 ? errno : ENOSPC);
      return written;
    }
    written += static_cast<std::size_t>(count);
  }
  return written;
}

// Ends the file after the last event that fits together with the tail, or at its previous end if no new event fits.
void TraceFile::end_after_partial_write(std::size_t written) {
  const std::string problem = std::exchange(problem_, {});
  const std::string end = tail();
  const std::size_t cut = written > end.size() ? buffer_.rfind(",\n", written - end.size()) : std::string::npos;
  const bool has_more = cut != std::string::npos && cut > 0;
  if (has_more) size_ += cut;
  const std::string& last = has_more ? end : last_tail_;
  if (write_at(size_, last) == last.size() && ::ftruncate(fd_, static_cast<off_t>(size_ + last.size())) == 0)
    last_tail_ = last;
  problem_ = problem;
}

// Checks whether another program has changed the file. If so, writing after the missing part would make the file
// invalid.
void TraceFile::check_unchanged() {
  struct stat status {};
  if (::fstat(fd_, &status) != 0) {
    problem_ = std::strerror(errno);
  } else if (status.st_nlink == 0) {
    problem_ = "it was removed";
  } else if (static_cast<std::uint64_t>(status.st_size) != size_ + last_tail_.size()) {
    problem_ = "another program has written to it";
  }
}

void TraceFile::flush() {
  if (!problem_.empty()) return;
  if (fd_ >= 0) {
    write_out();
    if (!problem_.empty()) close_file();
    return;
  }
  if (buffer_.empty() && tail() == last_tail_) return;
  if (!resume()) {
    problem_ = "it was replaced or removed";
    return;
  }
  suspend();
}

void TraceFile::suspend() {
  flush();
  close_file();
}

void TraceFile::close_file() {
  place_ = place();
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

bool TraceFile::resume() {
  if (fd_ >= 0 || !problem_.empty()) return problem_.empty();
  const int fd = ::open(path_.c_str(), kFlags);
  if (fd < 0) return false;
  struct stat status {};
  const bool is_the_same = ::fstat(fd, &status) == 0 && identity_ == Identity(status.st_dev, status.st_ino) &&
                           static_cast<std::uint64_t>(status.st_size) == size_ + last_tail_.size() &&
                           ::flock(fd, LOCK_EX | LOCK_NB) == 0;
  if (is_the_same) {
    fd_ = fd;
  } else {
    ::close(fd);
  }
  return is_the_same;
}

std::string TraceFile::place() const {
  if (fd_ < 0) return place_.empty() ? path_ : place_;
  std::error_code error;
  const auto place = std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(fd_), error);
  return error ? path_ : place.string();
}

void TraceFile::write_out() {
  check_unchanged();
  if (!problem_.empty()) return;
  const std::string end = tail();
  if (buffer_.empty() && end == last_tail_) return;
  const std::size_t added = buffer_.size();
  buffer_ += end;
  if (const std::size_t written = write_at(size_, buffer_); written < buffer_.size()) {
    end_after_partial_write(written);
  } else {
    size_ += added;
    // If the new tail is shorter than the old one, the remainder of the old one must be removed.
    if (end.size() < last_tail_.size() && ::ftruncate(fd_, static_cast<off_t>(size_ + end.size())) != 0) {
      problem_ = std::strerror(errno);
    }
    last_tail_ = end;
  }
  buffer_.clear();
}

void repair_trace_file(const std::string& path) noexcept {
  const int fd = ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) return;
  struct stat status {};
  std::array<char, 64> head{};
  const ssize_t read = ::pread(fd, head.data(), head.size(), 0);
  const bool is_ours = ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && read > 0 &&
                       std::string_view(head.data(), static_cast<std::size_t>(read)).starts_with(kHead);
  // More than any event needs, including what an interrupted write of several events may have left.
  const auto size = static_cast<std::uint64_t>(std::max<off_t>(status.st_size, 0));
  const std::uint64_t from = size - std::min<std::uint64_t>(size, 1 << 16);
  std::string bytes(is_ours ? size - from : 0, '\0');
  if (is_ours && ::flock(fd, LOCK_EX | LOCK_NB) == 0 &&
      ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(from)) == static_cast<ssize_t>(bytes.size()) &&
      !is_whole(bytes)) {
    const std::uint64_t end = from + end_of_events(bytes);
    constexpr std::string_view kTail = "\n],\"ddprun\":{\"cut_off\":true}}\n";
    if (end > from && ::ftruncate(fd, static_cast<off_t>(end)) == 0) {
      [[maybe_unused]] const ssize_t written = ::pwrite(fd, kTail.data(), kTail.size(), static_cast<off_t>(end));
    }
  }
  ::close(fd);
}

}  // namespace ddp::detail
