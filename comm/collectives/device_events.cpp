#include "comm/collectives/device_events.h"

#include <c10/core/Event.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstdio>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include <ddprun/comm/device_range.h>

#include "base/rank_prefix.h"
#include "base/timeline/own_timeline.h"
#include "comm/core/graph_capture.h"
#include "comm/group/stream_use.h"

namespace ddp::detail {
namespace {

using std::chrono::microseconds;

// Clocks of host and device drift apart by some microseconds a second.
constexpr uint64_t kMaxAnchorAge = 1'000'000'000;
// An idle stream reaches an event within this time; a busy one is queried again later.
constexpr uint64_t kAnchorTimeout = 100'000;
// After this many tries a late anchor between the clocks of host and device is used if there is no better one.
constexpr int kMaxAnchorAttempts = 3;
// The most pending events that are kept, and the most that are queried at once.
constexpr size_t kMaxPending = 4096;
constexpr int kMaxUnreachedAnchors = 4;

c10::Event timed_event(c10::Device device) {
  return c10::Event(device.type(), c10::EventFlag::BACKEND_DEFAULT);
}

struct Pending {
  std::string name;
  c10::Stream stream;
  c10::Event begin;
  std::optional<c10::Event> end{};
};

// Converts the time of a device's event to the host's clock.
class DeviceClock {
 public:
  // Records the event on a stream of its own. So the device usually reaches it at once, even if other streams are busy.
  void refresh(c10::Device device) {
    const uint64_t now = timeline_clock();
    if (anchor_ && now - anchor_->time < kMaxAnchorAge) return;
    if (pending_anchor_) {
      if (!pending_anchor_->event.query()) return;
      // A late anchor is better than none: streams of the pool are seldom busy.
      if (!anchor_ && ++tries_ >= kMaxAnchorAttempts) anchor_ = std::move(pending_anchor_);
      pending_anchor_.reset();
      if (anchor_) return;
    }
    if (!stream_) stream_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    Anchor anchor{.event = timed_event(device), .time = timeline_clock()};
    anchor.event.record(*stream_);
    uint64_t end = timeline_clock();
    bool is_reached = anchor.event.query();
    while (!is_reached && end - anchor.time < kAnchorTimeout) {
      is_reached = anchor.event.query();
      end = timeline_clock();
    }
    if (is_reached) {
      anchor.time += (end - anchor.time) / 2;
      anchor_ = std::move(anchor);
    } else {
      pending_anchor_ = std::move(anchor);
    }
  }

  bool is_known() const { return anchor_.has_value(); }
  // The event's time on timeline_clock().
  uint64_t time_of(const c10::Event& event) const {
    const double milliseconds = anchor_->event.elapsedTime(event);
    return static_cast<uint64_t>(static_cast<int64_t>(anchor_->time) + static_cast<int64_t>(milliseconds * 1e6));
  }

 private:
  struct Anchor {
    c10::Event event;
    uint64_t time = 0;
  };
  std::optional<c10::Stream> stream_;
  std::optional<Anchor> anchor_;
  std::optional<Anchor> pending_anchor_;  // the device had not reached it when it was queried
  int tries_ = 0;
};

// The lane of a stream, made of the device's number and the stream's.
uint64_t lane_of(const c10::Stream& stream) {
  constexpr int kDeviceShift = 56;
  return static_cast<uint64_t>(stream.device_index()) << kDeviceShift |
         (static_cast<uint64_t>(stream.id()) & ((uint64_t{1} << kDeviceShift) - 1));
}

class DeviceEvents {
 public:
  // Never destroyed: ranges may end while the process exits.
  static DeviceEvents& instance() {
    static auto& events = *new DeviceEvents;
    return events;
  }

  uint64_t begin(std::string_view name, c10::Device device) {
    const auto stream = current_stream(device);
    if (!stream || is_capturing()) return 0;
    const std::lock_guard lock(mutex_);
    if (has_failed_) return 0;
    clocks_[stream->device()].refresh(stream->device());
    take_reached();
    if (open_.size() + ended_.size() >= kMaxPending) ended_.clear();
    const uint64_t range = ++last_;
    Pending pending{.name = std::string(name), .stream = *stream, .begin = timed_event(device)};
    pending.begin.record(*stream);
    open_.emplace(range, std::move(pending));
    return range;
  }

  void end(uint64_t range, bool is_here) {
    const std::lock_guard lock(mutex_);
    const auto found = open_.find(range);
    if (found == open_.end()) return;
    Pending pending = std::move(found->second);
    open_.erase(found);
    if (is_capturing()) return;
    const auto here = is_here ? current_stream(pending.stream.device()) : std::nullopt;
    pending.end = timed_event(pending.stream.device());
    pending.end->record(here.value_or(pending.stream));
    ended_.push_back(std::move(pending));
  }

  // Returns how many are still pending.
  size_t take() {
    const std::lock_guard lock(mutex_);
    take_reached();
    return ended_.size();
  }

  // Prints the reason once, for example that this kind of device has no such events.
  void fail(const char* why) {
    const std::lock_guard lock(mutex_);
    if (std::exchange(has_failed_, true)) return;
    open_.clear();
    ended_.clear();
    std::fprintf(stderr, "%sthe timeline has no ranges on the device: %s\n", rank_prefix().c_str(), why);
  }

 private:
  void take_reached() {
    Recorder* recorder = recording();
    if (recorder == nullptr) return ended_.clear();
    int unreached = 0;
    for (auto pending = ended_.begin(); pending != ended_.end() && unreached < kMaxUnreachedAnchors;) {
      DeviceClock& clock = clocks_[pending->stream.device()];
      if (!clock.is_known()) clock.refresh(pending->stream.device());
      if (!clock.is_known() || !pending->end->query() || !pending->begin.query()) {
        ++unreached;
        ++pending;
        continue;
      }
      recorder->span(pending->name, clock.time_of(pending->begin), clock.time_of(*pending->end),
                     lane_of(pending->stream));
      pending = ended_.erase(pending);
    }
  }

  std::mutex mutex_;
  uint64_t last_ = 0;
  std::map<c10::Device, DeviceClock, bool (*)(c10::Device, c10::Device)> clocks_{
      [](c10::Device a, c10::Device b) { return std::pair(a.type(), a.index()) < std::pair(b.type(), b.index()); }};
  std::map<uint64_t, Pending> open_;
  std::deque<Pending> ended_;
  bool has_failed_ = false;
};

// An error in recording the timeline must not end the training.
template <typename Body>
auto run_noexcept(const Body& body) noexcept -> decltype(body()) {
  try {
    return body();
  } catch (const std::exception& error) {
    DeviceEvents::instance().fail(error.what());
  }
  return decltype(body())();
}

}  // namespace

uint64_t begin_on_device(std::string_view name, c10::Device device) noexcept {
  if (device.is_cpu() || recording() == nullptr) return 0;
  return run_noexcept([&] { return DeviceEvents::instance().begin(name, device); });
}

void end_on_device(uint64_t range) noexcept {
  if (range != 0) run_noexcept([&] { DeviceEvents::instance().end(range, /*is_here=*/false); });
}

void end_on_device_here(uint64_t range) noexcept {
  if (range != 0) run_noexcept([&] { DeviceEvents::instance().end(range, /*is_here=*/true); });
}

void finish_device_ranges(std::chrono::milliseconds patience) noexcept {
  if (recording() == nullptr) return;
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (run_noexcept([] { return DeviceEvents::instance().take(); }) > 0 &&
         std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(microseconds(200));
  }
}

}  // namespace ddp::detail

namespace ddp::timeline {

DeviceRange::DeviceRange(std::string_view name, c10::Device device) noexcept
    : id_(detail::begin_on_device(name, device)) {}
DeviceRange::~DeviceRange() {
  detail::end_on_device(id_);
}

}  // namespace ddp::timeline
