// What a rank does and when, in memory that it shares with the process that writes it to a file: a ring of words for
// each of its threads, which that thread alone fills and one reader empties, so neither waits for the other.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ddp::detail {

// A change of what is here is a new version, and such memory is neither written nor read.
inline constexpr std::uint64_t kTimelineVersion = 2;
// The launcher writes it before it starts the program.
inline constexpr std::uint64_t kTimelineGreeting = 0x656e694c72706464;  // "ddprLine"
// The variable with the number of the memory's descriptor.
inline constexpr const char* kTimelineVariable = "DDPRUN_TIMELINE_FD";

inline constexpr std::size_t kLanes = 64;
inline constexpr std::size_t kLaneWords = std::size_t{1} << 15;  // 256 KiB, of which only what is used takes memory

using RingWord = std::atomic<std::uint64_t>;
static_assert(RingWord::is_always_lock_free && sizeof(RingWord) == 8);

enum class LaneState : std::uint64_t {
  kFree = 0,
  kOwned = 1,
  kLeft = 2,  // its thread has ended; the reader frees it when it is empty
};

struct Lane {
  RingWord state;
  RingWord thread;            // the kernel's number of its thread
  RingWord head;              // words that were ever written
  RingWord lost;              // events for which there was no room
  alignas(64) RingWord tail;  // words that were ever read
};

enum class RecordingMode : std::uint64_t { kOff = 0, kOn = 1, kSteps = 2 };

struct TimelineRing {
  RingWord greeting;
  RingWord version;    // set last by the writer; 0: none
  RingWord process;    // the writer's number
  RingWord mode;       // RecordingMode, which the reader chooses
  RingWord first;      // with kSteps: these steps are recorded,
  RingWord last;       // up to and without this one
  RingWord recording;  // not 0: events are wanted
  RingWord step;       // steps that have ended
  RingWord starts;     // how often the reader has switched it on while the writer ran
  RingWord homeless;   // events of threads for which there was no lane
  std::array<Lane, kLanes> lanes;
  std::array<std::array<RingWord, kLaneWords>, kLanes> words;
};

// Whether events are wanted while `step` steps have ended.
constexpr bool is_wanted(RecordingMode mode, std::uint64_t step, std::uint64_t first, std::uint64_t last) {
  return mode == RecordingMode::kOn || (mode == RecordingMode::kSteps && first <= step && step < last);
}

// Nanoseconds of CLOCK_MONOTONIC, without a system call where the kernel offers that.
std::uint64_t timeline_clock() noexcept;

}  // namespace ddp::detail
