// Writes events into a timeline's memory. Any thread may call it; wait-free, and no system call but for a thread's
// first event.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/timeline/layout.h"
#include "base/timeline/records.h"

namespace ddp::detail {

class Recorder {
 public:
  // `ring` is zero but for its greeting and what its reader has chosen, and must outlive the process's threads.
  explicit Recorder(TimelineRing& ring) noexcept;

  bool is_on() const noexcept { return ring_.recording.load(std::memory_order_relaxed) != 0; }

  // Returns what end() wants: 0 when it is not recorded, and then end() does nothing.
  std::uint64_t begin(EventKind kind, std::string_view name, std::uint64_t number = 0,
                      std::uint64_t bytes = 0) noexcept;
  // In any thread.
  void end(std::uint64_t id) noexcept;
  // The transfer of a bucket begins.
  void mark(std::uint64_t id) noexcept;
  // A whole event, of a device.
  void span(std::string_view name, std::uint64_t begin, std::uint64_t end, std::uint64_t stream) noexcept;
  void value(std::string_view name, double number) noexcept;
  // A step has ended, before which `ended` had; `is_reported`: the program says so itself. Turns recording on and off
  // where it goes by steps; off only by what follows the last one's backward, unless it is set.
  void step(std::uint64_t ended, bool is_reported) noexcept;
  // The program says itself that the last one, which has ended before, ends only now.
  void confirm_step() noexcept;
  // The program itself has begun to record: what comes until the next step() is a whole step.
  void begin_step() noexcept;

  TimelineRing& ring() noexcept { return ring_; }

 private:
  static constexpr std::uint64_t kNoStart = ~std::uint64_t{0};  // it is off

  std::uint64_t write(const Record& record, std::size_t reserve) noexcept;
  void write_step(std::uint64_t ended, bool is_exact, bool is_whole) noexcept;
  bool ends_before(EventKind kind) noexcept;
  void note_begin_of_step() noexcept;

  TimelineRing& ring_;
  // The ring's `starts` when the step began that is under way; it is whole while that is so.
  std::atomic<std::uint64_t> start_of_step_{kNoStart};
  std::atomic<bool> is_ending_{false};  // the last step that was asked for lasts until the next phase
  std::atomic<bool> was_whole_{false};  // that step was
};

}  // namespace ddp::detail
