// Periodically reads the memory of the ranks in a separate thread while something is recorded, and passes the records
// to a RecordSink.
#pragma once

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/timeline/layout.h"
#include "base/timeline/trace_builder.h"

namespace ddp::detail {

class RingReader {
 public:
  // Receives complete records of lane number `lane`, in order. `position` counts all words that were ever written
  // before.
  using Take = std::function<void(std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words)>;

  // `ring` must outlive this object.
  explicit RingReader(TimelineRing& ring);

  // Passes on everything that has arrived since the last call. Returns the fill level of the fullest lane, 0 to 1.
  double read(const Take& take);
  // The number of events that were lost because there was no room.
  std::uint64_t lost() const;

 private:
  double read_lane(std::size_t lane, const Take& take);

  TimelineRing& ring_;
  std::array<std::uint64_t, kLanes> tails_{};
};

// Which steps are recorded, or that everything is recorded.
struct RecordingPlan {
  RecordingMode mode = RecordingMode::kOn;
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // exclusive
};
void set_plan(TimelineRing& ring, const RecordingPlan& plan, bool is_running);

class Collector {
 public:
  // The thread calls `after_pass` after each pass over all memory, and at the end. Both arguments must outlive this
  // object.
  Collector(RecordSink& sink, std::function<void()> after_pass);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  void add(int rank, std::string name, std::shared_ptr<TimelineRing> ring);
  // Adds records about a rank that another process has created, as records of an additional thread of that rank. Does
  // nothing if all lanes of the rank are in use.
  void add_records(int rank, std::vector<std::uint64_t> words);
  // Call it after recording has been switched off. Reads the remaining records, ends open events at the current time,
  // and calls `then` in the thread of the collector.
  void pause_all(std::function<void()> then);
  // Reads the remaining records, ends open events at the current time, and removes all ranks. Blocks until that is
  // done.
  void end_all();
  // Runs the task in the thread of the collector, in order with all other tasks.
  void post(std::function<void()> task);
  // The same, but waits until the task has finished.
  void run_now(const std::function<void()>& task);

 private:
  struct Source {
    int rank = 0;
    std::shared_ptr<TimelineRing> ring{};
    std::unique_ptr<RingReader> reader{};
  };
  void run();
  void name_threads(int rank, const TimelineRing& ring);
  double read_all();

  RecordSink& sink_;
  std::function<void()> after_pass_;
  std::list<Source> sources_;  // used only by the thread
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> tasks_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ddp::detail
