// An event file in a run's folder. A background thread writes it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ddp {

struct EventFileOptions {
  std::optional<int64_t> purge_step{};               ///< see SummaryWriterOptions
  std::chrono::milliseconds flush_interval{10'000};  ///< the maximum time that an event waits in memory
  size_t max_queue_bytes = size_t{64} << 20;         ///< if the queue is larger, add() waits for the disk
};

/// Writes events to `<folder>/events.out.tfevents.<seconds>.<host>.<pid>.<n>`. Each object creates a new file, and its
/// name sorts after the earlier files of the folder. Written data survive the end of the process, even by SIGKILL.
/// Thread-safe.
class EventFile {
 public:
  /// Creates the folder and the file. Throws std::runtime_error that names the path.
  explicit EventFile(const std::filesystem::path& folder, const EventFileOptions& options = {});
  ~EventFile();
  EventFile(const EventFile&) = delete;
  EventFile& operator=(const EventFile&) = delete;

  /// Queues an encoded event. It waits only if the queue is full. Throws std::runtime_error, naming the file and the
  /// cause, after writing has failed or after close().
  void add(std::string event);

  /// Returns when everything queued so far is in the file. Throws the same errors as add().
  void flush();

  /// Calls flush(), then closes the file. Further calls do nothing. The destructor does the same without throwing.
  void close();

  const std::filesystem::path& path() const { return path_; }

 private:
  void write_queue();
  void write_records(const std::vector<std::string>& events);
  void require_no_error() const;

  std::filesystem::path path_;
  EventFileOptions options_;
  int file_ = -1;

  std::mutex mutex_;
  std::condition_variable for_writer_;
  std::condition_variable for_callers_;
  std::vector<std::string> queue_;
  size_t queued_bytes_ = 0;  // includes the events that are being written
  uint64_t added_ = 0;
  uint64_t written_ = 0;
  uint64_t flush_up_to_ = 0;
  bool closing_ = false;
  std::string error_;
  std::thread writer_;
};

}  // namespace ddp
