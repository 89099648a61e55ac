// Converts the records of a rank's threads to events: matches starts with ends, puts overlapping events into separate
// lanes, and determines where steps end. Pure; memory use is bounded for any input.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/timeline/layout.h"
#include "base/timeline/records.h"
#include "base/timeline/trace_event.h"

namespace ddp::detail {

class Assembler {
 public:
  using Sink = std::function<void(TraceEvent)>;

  explicit Assembler(Sink sink);

  // Sets the clock offset in nanoseconds of subsequent records relative to the events (positive: the records' clock is
  // ahead). If the offset changes, later records of a lane are still never reported as earlier than preceding ones.
  void set_ahead(std::int64_t ahead);
  // Adds the records of lane number `lane`, in order and complete. `position` is the position of the first word.
  void take(std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words);
  // Call it after all lanes have been read. Reports events that ended in another thread than they began in, if their
  // ends arrived before the previous call.
  void on_pass_end();
  // Ends the recording, at least for now: open events end at `now` and are marked as unfinished. An open step is
  // dropped, because a part of a step does not count as a step.
  void finish(std::uint64_t now);
  // The number of invalid records.
  std::uint64_t damaged() const { return damaged_; }

 private:
  struct Open {
    std::uint64_t id = 0;
    TraceEvent event{};
  };
  struct ThreadState {
    std::uint64_t number = 0;
    std::vector<Open> stack{};
    std::uint64_t newest = 0;
    std::uint64_t least = 0;  // the end of the events that arrived with an earlier set_ahead()
  };
  struct Ending {
    std::uint64_t id = 0;
    std::uint64_t time = 0;
    bool is_mark = false;
    std::uint64_t pass = 0;
  };

  std::uint64_t corrected_time(std::uint64_t time, std::uint64_t least) const;
  void take_record(std::size_t lane, std::uint64_t position, const Record& record);
  void begin(std::size_t lane, std::uint64_t id, const Record& record);
  void end(std::size_t lane, std::uint64_t id, std::uint64_t time);
  void resolve(const Ending& ending);
  void mark(std::uint64_t id, std::uint64_t time);
  void name_thread(std::size_t lane, const Record& record);
  void close(ThreadState& thread, std::uint64_t time);
  void emit(TraceEvent event, std::uint64_t end);
  // A lane of `kind` in which nothing overlaps with the event.
  std::uint64_t free_lane(EventKind kind, std::uint64_t begin, std::uint64_t end);
  // The same for a device stream. Spans may be nested within a lane.
  std::uint64_t device_lane(std::uint64_t stream, std::uint64_t begin, std::uint64_t end);
  void name_lane(std::uint64_t lane, const std::string& name, std::uint64_t place);
  void note_begin(EventKind kind, std::uint64_t time);
  void end_step(const Record& record);
  void emit_step(std::uint64_t end);

  Sink sink_;
  std::array<ThreadState, kLanes> threads_{};
  std::uint64_t named_threads_ = 0;
  std::unordered_map<std::uint64_t, TraceEvent> operations_{};
  std::deque<Ending> endings_{};
  std::uint64_t pass_ = 1;
  std::map<EventKind, std::vector<std::uint64_t>> last_ends_{};
  std::unordered_map<std::uint64_t, std::string> lane_names_{};  // as reported to the sink
  struct DeviceLane {
    std::uint64_t stream = 0;
    std::deque<std::pair<std::uint64_t, std::uint64_t>> spans{};  // recent ones, without those nested in others
  };
  std::vector<DeviceLane> device_lanes_{};
  std::map<std::uint64_t, std::size_t> stream_numbers_{};  // in the order of the first spans
  std::int64_t ahead_ = 0;
  std::uint64_t newest_ = 0;
  std::optional<std::uint64_t> step_begin_ = std::nullopt;
  bool has_begun_ = false;  // a phase of a step, or a step, was seen; otherwise step_begin_ may still change
  struct EndedStep {
    std::uint64_t number = 0;
    std::uint64_t time = 0;
    bool is_cut = false;
  };
  std::optional<EndedStep> ended_step_ = std::nullopt;  // it lasts until the first phase of the next step
  std::deque<std::uint64_t> phase_begins_{};            // recent starts of data and forward phases
  std::uint64_t damaged_ = 0;
};

}  // namespace ddp::detail
