// A rank's ring of records, and the events that a reader makes of them.
#pragma once

#include <sys/mman.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/timeline/assembler.h"
#include "base/timeline/collector.h"
#include "base/timeline/recorder.h"
#include "base/timeline/trace_event.h"
#include "tests/support/catch.h"

namespace ddp::detail {

// Zeros, as a rank gets them. A thread knows the ring that it records into by its address, which no later one may have.
struct KeepAddress {
  void operator()(TimelineRing* ring) const { ::madvise(ring, sizeof *ring, MADV_DONTNEED); }
};
inline std::unique_ptr<TimelineRing, KeepAddress> new_ring() {
  void* const memory =
      ::mmap(nullptr, sizeof(TimelineRing), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  return std::unique_ptr<TimelineRing, KeepAddress>(static_cast<TimelineRing*>(memory));
}

// A rank's memory and what comes of it.
struct TimelineTest {
  TimelineTest() {
    ring->greeting = kTimelineGreeting;
    ring->mode = static_cast<std::uint64_t>(RecordingMode::kOn);
    recorder = std::make_unique<Recorder>(*ring);
    reader = std::make_unique<RingReader>(*ring);
  }
  void read() {
    reader->read([&](std::size_t lane, std::uint64_t position, auto words) { assembler.take(lane, position, words); });
    assembler.on_pass_end();
  }
  std::vector<TraceEvent> slices(const std::string& name = "") const {
    std::vector<TraceEvent> found;
    for (const TraceEvent& event : events) {
      if (event.form == TraceEvent::Form::kSlice && (name.empty() || event.name == name)) found.push_back(event);
    }
    return found;
  }
  TraceEvent only(const std::string& name) const {
    const auto found = slices(name);
    REQUIRE(found.size() == 1);
    return found.front();
  }
  std::unique_ptr<TimelineRing, KeepAddress> ring = new_ring();
  std::unique_ptr<Recorder> recorder;
  std::unique_ptr<RingReader> reader;
  std::vector<TraceEvent> events;
  Assembler assembler{[this](TraceEvent event) { events.push_back(std::move(event)); }};
};

}  // namespace ddp::detail
