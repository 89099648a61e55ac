// The timeline of this process: in the memory that its launcher shares with it, or for a ddp::Timeline of its own.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/timeline/recorder.h"

namespace ddp::detail {

// Who records in this process; null where no launcher reads it.
Recorder* own_recorder() noexcept;

// The same while events are wanted, else null.
inline Recorder* recording() noexcept {
  Recorder* recorder = own_recorder();
  return recorder != nullptr && recorder->is_on() ? recorder : nullptr;
}

// 0 while nothing is recorded.
inline std::uint64_t begin_event(EventKind kind, std::string_view name, std::uint64_t number = 0,
                                 std::uint64_t bytes = 0) noexcept {
  Recorder* recorder = recording();
  return recorder != nullptr ? recorder->begin(kind, name, number, bytes) : 0;
}
inline void end_event(std::uint64_t id) noexcept {
  if (id == 0) return;
  if (Recorder* recorder = own_recorder()) recorder->end(id);
}

// A step of this process has ended; see Recorder::step().
void end_step(bool is_reported) noexcept;
// The last one, which has ended before, ends only now; see Recorder::confirm_step().
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

// From now on events go to `ring`, which is given the number of the steps so far; null: to the launcher's memory, if
// there is any. False where the launcher records at the moment.
bool redirect_events_to(std::shared_ptr<TimelineRing> ring) noexcept;
// Memory for a timeline of this process's own; the same one each time. Null otherwise.
std::shared_ptr<TimelineRing> private_ring() noexcept;

}  // namespace ddp::detail
