// Writes events to the memory of a timeline. All functions are wait-free and may be called by any thread. Only the
// first event of a thread makes a system call.
#pragma once

#include <atomic>
#include <cstdint>
#include <string_view>

#include "base/timeline/layout.h"
#include "base/timeline/records.h"

namespace ddp::detail {

class Recorder {
 public:
  // `ring` must be zero except for its greeting and the settings of its reader, and must outlive all threads of the
  // process.
  explicit Recorder(TimelineRing& ring) noexcept;

  bool is_on() const noexcept { return ring_.recording.load(std::memory_order_relaxed) != 0; }

  // Returns the ID for end(). It is 0 if the event is not recorded; end() then does nothing.
  std::uint64_t begin(EventKind kind, std::string_view name, std::uint64_t number = 0,
                      std::uint64_t bytes = 0) noexcept;
  // May be called by any thread.
  void end(std::uint64_t id) noexcept;
  // The transfer of a bucket begins.
  void mark(std::uint64_t id) noexcept;
  // Records a complete event of a device.
  void span(std::string_view name, std::uint64_t begin, std::uint64_t end, std::uint64_t stream) noexcept;
  void value(std::string_view name, double number) noexcept;
  // A step has ended; `ended` steps had ended before it. `is_reported`: the program itself reported the end. Switches
  // recording on and off if steps were requested by number. Recording then ends with the first phase after the backward
  // of the last step, or immediately if `is_reported` is true.
  void step(std::uint64_t ended, bool is_reported) noexcept;
  // The program itself reports that the last step, which was counted before, ends only now.
  void confirm_step() noexcept;
  // The program itself has started recording: everything until the next step() forms a complete step.
  void begin_step() noexcept;

  TimelineRing& ring() noexcept { return ring_; }

 private:
  static constexpr std::uint64_t kNoStart = ~std::uint64_t{0};  // recording is off

  std::uint64_t write(const Record& record, std::size_t reserve) noexcept;
  void write_step(std::uint64_t ended, bool is_exact, bool is_whole) noexcept;
  bool ends_before(EventKind kind) noexcept;
  void note_begin_of_step() noexcept;

  TimelineRing& ring_;
  // The ring's `starts` at the start of the current step. The step is complete only if `starts` has not changed at its
  // end.
  std::atomic<std::uint64_t> start_of_step_{kNoStart};
  std::atomic<bool> is_ending_{false};  // the last requested step lasts until the next phase begins
  std::atomic<bool> was_whole_{false};  // whether that step was complete
};

}  // namespace ddp::detail
