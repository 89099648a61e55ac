// Reads the memory of ranks again and again in a thread of its own, as long as something is recorded there, and hands
// what it finds to a RecordSink.
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
  // Whole records of lane number `lane`, in their order; `position` is that of the first word since ever.
  using Take = std::function<void(std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words)>;

  // `ring` must outlive this.
  explicit RingReader(TimelineRing& ring);

  // Hands over what has arrived since the last call. Returns the largest share of a lane's room that was in use, 0
  // to 1.
  double read(const Take& take);
  // Events for which there was no room.
  std::uint64_t lost() const;

 private:
  double read_lane(std::size_t lane, const Take& take);

  TimelineRing& ring_;
  std::array<std::uint64_t, kLanes> tails_{};
};

// Which steps are recorded, or all that happens.
struct RecordingPlan {
  RecordingMode mode = RecordingMode::kOn;
  std::uint64_t first = 0;
  std::uint64_t last = 0;  // without this one
};
void set_plan(TimelineRing& ring, const RecordingPlan& plan, bool is_running);

class Collector {
 public:
  // `after_pass` is called in the thread when all memory was read, and at the end. Both must outlive this.
  Collector(RecordSink& sink, std::function<void()> after_pass);
  ~Collector();
  Collector(const Collector&) = delete;
  Collector& operator=(const Collector&) = delete;

  void add(int rank, std::string name, std::shared_ptr<TimelineRing> ring);
  // Adds records about a rank that another process has made, as records of a further thread of that rank. Does nothing
  // if the rank has threads in all lanes.
  void tell(int rank, std::vector<std::uint64_t> words);
  // Recording has been switched off: reads what the ranks have left, ends their events at this moment, and calls
  // `then` in the collector's thread.
  void pause_all(std::function<void()> then);
  // Reads what the ranks have left, ends their events at this moment and forgets them. Waits for that.
  void end_all();
  // In the collector's thread, in order with everything else.
  void post(std::function<void()> task);
  // The same, and waits for it.
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
  std::list<Source> sources_;  // the thread's own
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<std::function<void()>> tasks_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace ddp::detail
