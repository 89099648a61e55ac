#include "base/timeline/recorder.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>

#include "base/memory_orders.h"

namespace ddp::detail {
namespace {

// The room that begin records leave for the ends of events that began in other threads.
constexpr std::size_t kReservedForEnds = 1024;

// The lane of a thread. The type is trivial, so reading it needs no check whether it has been constructed.
struct ThreadLane {
  TimelineRing* ring = nullptr;
  Lane* lane = nullptr;
  std::size_t index = 0;
  std::uint64_t tail = 0;  // the last known value
  std::uint64_t open = 0;  // events that began in this thread and are still open
  bool is_over = false;    // the thread is ending
};
constinit thread_local ThreadLane own_lane;

struct LaneRelease {
  ~LaneRelease() {
    own_lane.is_over = true;
    if (own_lane.lane != nullptr) own_lane.lane->state.store(static_cast<std::uint64_t>(LaneState::kLeft), kRelease);
    own_lane.lane = nullptr;
  }
  bool is_needed = false;
};
thread_local LaneRelease lane_release;

std::uint64_t number_of_thread() noexcept {
  return static_cast<std::uint64_t>(::syscall(SYS_gettid));
}

bool claim_lane(TimelineRing& ring) noexcept {
  own_lane.ring = &ring;
  own_lane.lane = nullptr;
  for (std::size_t index = 0; index < kLanes; ++index) {
    Lane& lane = ring.lanes[index];
    auto free = static_cast<std::uint64_t>(LaneState::kFree);
    if (lane.state.load(kRelaxed) != free) continue;
    if (!lane.state.compare_exchange_strong(free, static_cast<std::uint64_t>(LaneState::kOwned))) continue;
    lane.thread.store(number_of_thread(), kRelaxed);
    own_lane.lane = &lane;
    own_lane.index = index;
    own_lane.tail = lane.tail.load(kAcquire);
    own_lane.open = 0;
    lane_release.is_needed = true;  // this access constructs the object
    return true;
  }
  return false;
}

}  // namespace

std::uint64_t timeline_clock() noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Recorder::Recorder(TimelineRing& ring) noexcept : ring_(ring) {
  ring_.process.store(static_cast<std::uint64_t>(::getpid()), kRelaxed);
  const auto mode = static_cast<RecordingMode>(ring_.mode.load(kRelaxed));
  const bool is_on = is_wanted(mode, 0, ring_.first.load(kRelaxed), ring_.last.load(kRelaxed));
  ring_.recording.store(is_on ? 1 : 0, kRelaxed);
  note_begin_of_step();
  ring_.version.store(kTimelineVersion, kRelease);
}

// Returns the position of the record in the ring of its lane, plus 1; 0 if there was no room.
std::uint64_t Recorder::write(const Record& record, std::size_t reserve) noexcept {
  if (own_lane.is_over) return 0;
  if (own_lane.ring != &ring_ || own_lane.lane == nullptr) {
    if (!claim_lane(ring_)) {
      ring_.events_without_lane.fetch_add(1, kRelaxed);
      return 0;
    }
    std::array<char, 17> name{};
    ::prctl(PR_GET_NAME, name.data());
    write({.type = RecordType::kThread,
           .time = timeline_clock(),
           .number = own_lane.lane->thread.load(kRelaxed),
           .value = ring_.process.load(kRelaxed),
           .text = name.data()},
          0);
  }
  Lane& lane = *own_lane.lane;
  std::array<std::uint64_t, kMaxRecordWords> words;
  const std::size_t count = encode(record, words);
  const std::uint64_t head = lane.head.load(kRelaxed);
  if (head + count + reserve > own_lane.tail + kLaneWords) {
    own_lane.tail = lane.tail.load(kAcquire);
    if (head + count + reserve > own_lane.tail + kLaneWords) {
      lane.lost.store(lane.lost.load(kRelaxed) + 1, kRelaxed);
      return 0;
    }
  }
  auto& ring = ring_.words[own_lane.index];
  for (std::size_t i = 0; i < count; ++i) ring[(head + i) % kLaneWords].store(words[i], kRelaxed);
  lane.head.store(head + count, kRelease);
  return head + 1;
}

std::uint64_t Recorder::begin(EventKind kind, std::string_view name, std::uint64_t number,
                              std::uint64_t bytes) noexcept {
  if (is_ending_.load(kRelaxed) && ends_before(kind)) return 0;
  const bool is_within = is_within_thread(kind);
  const std::uint64_t open = own_lane.ring == &ring_ ? own_lane.open : 0;
  const std::uint64_t position = write({.type = RecordType::kBegin,
                                        .kind = kind,
                                        .time = timeline_clock(),
                                        .number = number,
                                        .value = bytes,
                                        .text = name},
                                       kReservedForEnds + (open + 1) * kHeadWords);
  if (position == 0) return 0;
  if (is_within) ++own_lane.open;
  return event_id(own_lane.index, position - 1);
}

void Recorder::end(std::uint64_t id) noexcept {
  if (id == 0) return;
  write({.type = RecordType::kEnd, .time = timeline_clock(), .number = id}, 0);
  if (own_lane.ring == &ring_ && own_lane.open > 0 && lane_of(id) == own_lane.index) --own_lane.open;
}

void Recorder::mark(std::uint64_t id) noexcept {
  if (id != 0) write({.type = RecordType::kMark, .time = timeline_clock(), .number = id}, kReservedForEnds);
}

void Recorder::span(std::string_view name, std::uint64_t begin, std::uint64_t end, std::uint64_t stream) noexcept {
  write({.type = RecordType::kSpan,
         .kind = EventKind::kDevice,
         .time = begin,
         .number = end,
         .value = stream,
         .text = name},
        kReservedForEnds);
}

void Recorder::value(std::string_view name, double number) noexcept {
  if (!is_on()) return;
  write({.type = RecordType::kValue,
         .time = timeline_clock(),
         .value = std::bit_cast<std::uint64_t>(number),
         .text = name},
        kReservedForEnds);
}

void Recorder::write_step(std::uint64_t ended, bool is_exact, bool is_whole) noexcept {
  write({.type = RecordType::kStep,
         .time = timeline_clock(),
         .number = ended,
         .value = (is_exact ? kExactEnd : 0) | (is_whole ? 0 : kCutBegin)},
        kReservedForEnds);
}

void Recorder::begin_step() noexcept {
  note_begin_of_step();
  const std::uint64_t step = ring_.step.load(kRelaxed);
  if (is_on() && step > 0) write_step(step - 1, /*is_exact=*/true, /*is_whole=*/false);
}

void Recorder::confirm_step() noexcept {
  const std::uint64_t step = ring_.step.load(kRelaxed);
  if (is_on() && step > 0) write_step(step - 1, /*is_exact=*/true, was_whole_.load(kRelaxed));
}

void Recorder::note_begin_of_step() noexcept {
  start_of_step_.store(is_on() ? ring_.starts.load(kRelaxed) : kNoStart, kRelaxed);
}

void Recorder::step(std::uint64_t ended, bool is_reported) noexcept {
  ring_.step.store(ended + 1, kRelaxed);
  const bool is_past_end = is_ending_.exchange(false, kRelaxed);  // beyond the requested steps
  const bool was_on = is_on() && !is_past_end;
  const auto mode = static_cast<RecordingMode>(ring_.mode.load(kRelaxed));
  const bool is_by_steps = mode == RecordingMode::kSteps;
  const bool is_next =
      is_by_steps ? is_wanted(mode, ended + 1, ring_.first.load(kRelaxed), ring_.last.load(kRelaxed)) : is_on();
  const std::uint64_t start = ring_.starts.load(kRelaxed);
  const bool was_whole = start_of_step_.exchange(is_next ? start : kNoStart, kRelaxed) == start;
  was_whole_.store(was_whole, kRelaxed);
  // This record is also needed if only the next step is recorded: the end of this step is the start of the next.
  if (was_on || is_next) write_step(ended, is_reported, was_on && was_whole);
  if (!is_by_steps) return;
  if (was_on && !is_next && !is_reported) {
    is_ending_.store(true, kRelaxed);
  } else {
    ring_.recording.store(is_next ? 1 : 0, kRelaxed);
  }
}

// Whether the event begins after the last requested step, in which case recording ends. A newer choice of the reader
// takes precedence. If no further step follows, the end of the last step remains unknown.
bool Recorder::ends_before(EventKind kind) noexcept {
  const bool is_next = kind == EventKind::kData || kind == EventKind::kForward || kind == EventKind::kEvaluation ||
                       kind == EventKind::kClosing;
  if (!is_next || !is_ending_.exchange(false, kRelaxed)) return false;
  const std::uint64_t step = ring_.step.load(kRelaxed);
  const auto mode = static_cast<RecordingMode>(ring_.mode.load(kRelaxed));
  if (is_wanted(mode, step, ring_.first.load(kRelaxed), ring_.last.load(kRelaxed))) return false;
  const bool is_step = kind == EventKind::kData || kind == EventKind::kForward;
  if (is_step) write_step(step - 1, /*is_exact=*/true, was_whole_.load(kRelaxed));
  if (mode == RecordingMode::kSteps) ring_.recording.store(0, kRelaxed);
  return true;
}

}  // namespace ddp::detail
