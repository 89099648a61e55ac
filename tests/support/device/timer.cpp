#include "tests/support/device/timer.h"

#include <c10/core/Event.h>

#include <array>
#include <optional>

#include "tests/support/device/devices.h"

namespace ddp::test::device {
namespace {

constexpr size_t kEvents = 5;

class EventTimer final : public c10d::Timer {
 public:
  explicit EventTimer(c10::Device device) : device_(device) {}

  void record(Event event) override {
    Timer::record(event);
    auto& own = events_.at(static_cast<size_t>(event));
    own.emplace(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
    own->record(current_stream(device_.index()));
  }
  std::optional<int64_t> measureDifference(Event start, Event end) override {
    auto& first = events_.at(static_cast<size_t>(start));
    auto& last = events_.at(static_cast<size_t>(end));
    if (!first || !last) return std::nullopt;
    first->synchronize();
    last->synchronize();
    const double milliseconds = first->elapsedTime(*last);
    if (milliseconds < 0) return std::nullopt;
    return static_cast<int64_t>(milliseconds * 1e6);
  }

 private:
  const c10::Device device_;
  std::array<std::optional<c10::Event>, kEvents> events_;
};

}  // namespace

std::unique_ptr<c10d::Timer> make_timer(c10::Device device) {
  return std::make_unique<EventTimer>(device);
}

}  // namespace ddp::test::device
