// Internal: a wait of the caller's for other ranks, in the progress page's and the timeline's terms.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "base/progress/page.h"
#include "base/timeline/own_timeline.h"

namespace ddp::detail {

/// From where it is made until it is destroyed the thread's lane has "wait for <operation>".
class CallWait {
 public:
  /// `since`: by page_clock().
  explicit CallWait(const char* operation, uint64_t since = page_clock())
      : since_(since), event_(recording() ? begin_event(EventKind::kWait, std::string("wait for ") + operation) : 0) {}
  CallWait(CallWait&& other) noexcept : since_(other.since_), event_(std::exchange(other.event_, 0)) {}
  CallWait& operator=(CallWait&&) = delete;
  ~CallWait() { end_event(event_); }

  /// By page_clock().
  uint64_t since() const { return since_; }

 private:
  uint64_t since_;
  uint64_t event_;
};

}  // namespace ddp::detail
