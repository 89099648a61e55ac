// The events of a rank, in memory that it shares with the process that writes them to a file. Each thread has a ring of
// words that only this thread fills and only one reader empties, so neither of them waits for the other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::detail {

// Increase the version when the layout changes. Memory of another version is neither written nor read.
inline constexpr std::uint64_t kTimelineVersion = 2;
// The launcher writes it before it starts the program.
inline constexpr std::uint64_t kTimelineGreeting = 0x656e694c72706464;  // "ddprLine"
// The environment variable with the number of the memory's file descriptor.
inline constexpr const char* kTimelineVariable = "DDPRUN_TIMELINE_FD";

inline constexpr std::size_t kLanes = 64;
inline constexpr std::size_t kLaneWords = std::size_t{1} << 15;  // 256 KiB, of which only what is used occupies memory

using RingWord = std::atomic<std::uint64_t>;
static_assert(RingWord::is_always_lock_free && sizeof(RingWord) == 8);

enum class LaneState : std::uint64_t {
  kFree = 0,
  kOwned = 1,
  kLeft = 2,  // its thread has ended; the reader frees the lane when it is empty
};

struct Lane {
  RingWord state;
  RingWord thread;            // the thread ID (TID)
  RingWord head;              // the number of words ever written
  RingWord lost;              // the number of events for which there was no room
  alignas(64) RingWord tail;  // the number of words ever read
};

enum class RecordingMode : std::uint64_t { kOff = 0, kOn = 1, kSteps = 2 };

struct TimelineRing {
  RingWord greeting;
  RingWord version;              // set last when the memory is initialized; 0: not initialized
  RingWord process;              // the process ID of the writer
  RingWord mode;                 // RecordingMode, set by the reader
  RingWord first;                // with kSteps: the first recorded step
  RingWord last;                 // the end of the recorded steps, exclusive
  RingWord recording;            // nonzero: events are recorded
  RingWord step;                 // the number of finished steps
  RingWord starts;               // how often the reader has switched recording on while the program ran
  RingWord events_without_lane;  // the number of events from threads that got no lane
  std::array<Lane, kLanes> lanes;
  std::array<std::array<RingWord, kLaneWords>, kLanes> words;
};

// Whether events are recorded after `step` steps have ended.
constexpr bool is_wanted(RecordingMode mode, std::uint64_t step, std::uint64_t first, std::uint64_t last) {
  return mode == RecordingMode::kOn || (mode == RecordingMode::kSteps && first <= step && step < last);
}

// Nanoseconds of CLOCK_MONOTONIC, without a system call if the kernel supports that.
std::uint64_t timeline_clock() noexcept;

}  // namespace ddp::detail
