#include "base/timeline/own_timeline.h"

#include <pthread.h>
#include <sys/mman.h>

#include <atomic>
#include <new>

#include <ddprun/base/timeline.h>

#include "base/launcher_memory.h"

namespace ddp::detail {
namespace {

// Keeps the lanes: records of the threads of a previous process have not been read yet.
void leave_lanes(TimelineRing& ring, bool) noexcept {
  for (Lane& lane : ring.lanes) {
    auto owned = static_cast<std::uint64_t>(LaneState::kOwned);
    lane.state.compare_exchange_strong(owned, static_cast<std::uint64_t>(LaneState::kLeft));
  }
}

struct OwnTimeline {
  OwnTimeline() noexcept {
    if (auto* ring = claim_launcher_memory<TimelineRing>(kTimelineVariable, kTimelineGreeting, leave_lanes)) {
      launchers = new (std::nothrow) Recorder(*ring);
      active.store(launchers, std::memory_order_release);
    }
    // A forked child must not write to the lanes of the parent's threads.
    ::pthread_atfork(nullptr, nullptr, [] { instance().active.store(nullptr, std::memory_order_relaxed); });
  }
  static OwnTimeline& instance() noexcept {
    static OwnTimeline& own = *new OwnTimeline;
    return own;
  }

  Recorder* launchers = nullptr;
  std::atomic<Recorder*> active{nullptr};
  std::atomic<std::uint64_t> steps{0};
};

}  // namespace

Recorder* own_recorder() noexcept {
  return OwnTimeline::instance().active.load(std::memory_order_relaxed);
}

void end_step(bool is_reported) noexcept {
  OwnTimeline& own = OwnTimeline::instance();
  const std::uint64_t ended = own.steps.fetch_add(1, std::memory_order_relaxed);
  if (Recorder* recorder = own.active.load(std::memory_order_relaxed)) recorder->step(ended, is_reported);
}

void confirm_step() noexcept {
  if (Recorder* recorder = recording()) recorder->confirm_step();
}

bool redirect_events_to(std::shared_ptr<TimelineRing> ring) noexcept {
  OwnTimeline& own = OwnTimeline::instance();
  if (!ring) {
    own.active.store(own.launchers, std::memory_order_release);
    return true;
  }
  const auto off = static_cast<std::uint64_t>(RecordingMode::kOff);
  if (own.launchers != nullptr && own.launchers->ring().mode.load(std::memory_order_relaxed) != off) return false;
  // Never destroyed, because threads may be using a recorder at any time. There is only one ring.
  static Recorder& recorder = *new Recorder(*ring);
  ring->step.store(own.steps.load(std::memory_order_relaxed), std::memory_order_relaxed);
  own.active.store(&recorder, std::memory_order_release);
  return true;
}

std::shared_ptr<TimelineRing> private_ring() noexcept {
  static TimelineRing* const ring = []() -> TimelineRing* {
    void* memory = ::mmap(nullptr, sizeof(TimelineRing), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? nullptr : static_cast<TimelineRing*>(memory);
  }();
  return {ring, [](TimelineRing*) {}};
}

}  // namespace ddp::detail

namespace ddp::timeline {

bool is_recording() noexcept {
  return detail::recording() != nullptr;
}

Range::Range(std::string_view name) noexcept : id_(detail::begin_event(detail::EventKind::kUser, name)) {}
Range::~Range() {
  detail::end_event(id_);
}

}  // namespace ddp::timeline
