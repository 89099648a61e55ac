#include "monitor/event_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <stdexcept>
#include <string_view>
#include <utility>

#include "base/block_file_size_signal.h"
#include "monitor/errno_text.h"
#include "monitor/event.h"
#include "monitor/wire/record.h"

namespace ddp {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kPrefix = "events.out.tfevents.";
/// If the queue holds this many bytes, the writer does not wait for the end of the interval.
constexpr size_t kWriteAt = size_t{1} << 20;
constexpr int kMaxFilesPerSecond = 1000;

int64_t now_seconds() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// Readers read the files of a folder in the order of their names. The file of a resumed run must therefore sort after
/// the earlier file, even if both were created in the same second.
int64_t seconds_of_a_new_file(const fs::path& folder) {
  int64_t seconds = now_seconds();
  const int64_t one_day_on = seconds + 24 * 3600;  // such a late time does not come from a slightly wrong clock
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix)) continue;
    int64_t earlier = 0;
    std::from_chars(name.data() + kPrefix.size(), name.data() + name.size(), earlier);
    if (earlier >= seconds && earlier < one_day_on) seconds = earlier + 1;
  }
  return seconds;
}

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  std::string host = name.data();
  std::replace(host.begin(), host.end(), '/', '_');
  return host;
}

}  // namespace

EventFile::EventFile(const fs::path& folder, const EventFileOptions& options) : options_(options) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) throw std::runtime_error(folder.string() + ": cannot be created: " + error.message());
  std::array<char, 32> seconds{};
  std::snprintf(seconds.data(), seconds.size(), "%010lld", static_cast<long long>(seconds_of_a_new_file(folder)));
  const std::string name =
      std::string(kPrefix) + seconds.data() + "." + host_name() + "." + std::to_string(::getpid()) + ".";
  for (int n = 0; file_ < 0; ++n) {
    path_ = folder / (name + std::to_string(n));
    file_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (file_ < 0 && (errno != EEXIST || n == kMaxFilesPerSecond)) {
      throw std::runtime_error(path_.string() + ": cannot be created: " + detail::errno_text());
    }
  }
  // The file is valid from its first bytes on.
  std::vector<std::string> first = {encode_file_version(now())};
  if (options_.purge_step) {
    first.push_back(encode_session_start({.wall_time = now(), .step = *options_.purge_step}));
  }
  write_records(first);
  if (!error_.empty()) {
    ::close(file_);
    throw std::runtime_error(error_);
  }
  writer_ = std::thread([this] { write_queue(); });
}

EventFile::~EventFile() {
  try {
    close();
  } catch (const std::exception& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
  }
}

void EventFile::add(std::string event) {
  const size_t bytes = event.size() + wire::kRecordOverhead;
  std::unique_lock lock(mutex_);
  // An event that is larger than the whole queue is accepted if the queue is empty.
  for_callers_.wait(lock, [&] {
    return closing_ || !error_.empty() || queued_bytes_ == 0 || queued_bytes_ + bytes <= options_.max_queue_bytes;
  });
  require_no_error();
  if (closing_) throw std::runtime_error(path_.string() + ": an event was added after close()");
  queue_.push_back(std::move(event));
  queued_bytes_ += bytes;
  ++added_;
  if (added_ == written_ + 1 || queued_bytes_ >= std::min(kWriteAt, options_.max_queue_bytes / 2)) {
    for_writer_.notify_one();
  }
}

void EventFile::flush() {
  std::unique_lock lock(mutex_);
  const uint64_t up_to = added_;
  flush_up_to_ = up_to;
  for_writer_.notify_one();
  for_callers_.wait(lock, [&] { return !error_.empty() || written_ >= up_to; });
  require_no_error();
}

void EventFile::close() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  for_writer_.notify_one();
  for_callers_.notify_all();
  if (!writer_.joinable()) return;
  writer_.join();
  const int status = ::close(std::exchange(file_, -1));
  if (error_.empty() && status != 0) error_ = path_.string() + ": cannot be closed: " + detail::errno_text();
  require_no_error();
}

void EventFile::require_no_error() const {
  if (!error_.empty()) throw std::runtime_error(error_);
}

/// The writer's thread.
void EventFile::write_queue() {
  const auto interval = std::clamp<std::chrono::milliseconds>(options_.flush_interval, std::chrono::milliseconds(1),
                                                              std::chrono::hours(24));
  const size_t write_at = std::min(kWriteAt, options_.max_queue_bytes / 2);
  std::unique_lock lock(mutex_);
  while (true) {
    for_writer_.wait(lock, [&] { return closing_ || !queue_.empty(); });
    for_writer_.wait_for(lock, interval,
                         [&] { return closing_ || flush_up_to_ > written_ || queued_bytes_ >= write_at; });
    if (queue_.empty()) return;  // the queue is empty only if the file is being closed
    const std::vector<std::string> events = std::exchange(queue_, {});
    const size_t bytes = queued_bytes_;
    lock.unlock();
    write_records(events);
    lock.lock();
    queued_bytes_ -= bytes;
    written_ += events.size();
    for_callers_.notify_all();
  }
}

/// Writes whole records with one call, so that a reader seldom sees an incomplete record. After a failure, nothing more
/// is written: the file ends there, and its complete records stay readable.
void EventFile::write_records(const std::vector<std::string>& events) {
  if (!error_.empty()) return;
  std::string records;
  for (const std::string& event : events) wire::append_record(records, event);
  std::string_view rest = records;
  const detail::BlockFileSizeSignal blocked;
  while (!rest.empty()) {
    const ssize_t count = ::write(file_, rest.data(), rest.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const std::string problem = path_.string() + ": cannot be written: " + detail::errno_text();
      const std::lock_guard lock(mutex_);
      error_ = problem;
      return;
    }
    rest.remove_prefix(static_cast<size_t>(count));
  }
}

}  // namespace ddp
