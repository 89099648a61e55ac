// The timeline of this process: in the memory shared with its launcher, or in private memory for a ddp::Timeline.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/timeline/recorder.h"

namespace ddp::detail {

// The recorder of this process; null if no launcher or Timeline reads its events.
Recorder* own_recorder() noexcept;

// The recorder while events are being recorded, otherwise null.
inline Recorder* recording() noexcept {
  Recorder* recorder = own_recorder();
  return recorder != nullptr && recorder->is_on() ? recorder : nullptr;
}

// Returns 0 while nothing is recorded.
inline std::uint64_t begin_event(EventKind kind, std::string_view name, std::uint64_t number = 0,
                                 std::uint64_t bytes = 0) noexcept {
  Recorder* recorder = recording();
  return recorder != nullptr ? recorder->begin(kind, name, number, bytes) : 0;
}
inline void end_event(std::uint64_t id) noexcept {
  if (id == 0) return;
  if (Recorder* recorder = own_recorder()) recorder->end(id);
}

// Reports that a step of this process has ended; see Recorder::step().
void end_step(bool is_reported) noexcept;
// The last step, which was reported before, ends only now; see Recorder::confirm_step().
void confirm_step() noexcept;

class EventScope {
 public:
  explicit EventScope(EventKind kind) noexcept : id_(begin_event(kind, category_of(kind))) {}
  EventScope(EventKind kind, std::string_view name) noexcept : id_(begin_event(kind, name)) {}
  ~EventScope() { end_event(id_); }
  EventScope(const EventScope&) = delete;
  EventScope& operator=(const EventScope&) = delete;

 private:
  std::uint64_t id_;
};

// Redirects subsequent events to `ring` and stores the number of finished steps there. Null redirects them to the
// memory of the launcher, if there is any. Returns false if the launcher is recording at the moment.
bool redirect_events_to(std::shared_ptr<TimelineRing> ring) noexcept;
// Memory for a timeline of this process; each call returns the same memory. Null if the memory cannot be allocated.
std::shared_ptr<TimelineRing> private_ring() noexcept;

}  // namespace ddp::detail
