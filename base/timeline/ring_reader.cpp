#include "base/timeline/ring_reader.h"

#include <algorithm>
#include <vector>

namespace ddp::detail {

RingReader::RingReader(TimelineRing& ring) : ring_(ring) {
  for (std::size_t i = 0; i < kLanes; ++i) tails_[i] = ring.lanes[i].tail.load(std::memory_order_relaxed);
}

double RingReader::read(const Take& take) {
  if (ring_.version.load(std::memory_order_acquire) != kTimelineVersion) return 0;
  double most = 0;
  for (std::size_t lane = 0; lane < kLanes; ++lane) most = std::max(most, read_lane(lane, take));
  return most;
}

double RingReader::read_lane(std::size_t index, const Take& take) {
  Lane& lane = ring_.lanes[index];
  // The state before the head: what a thread that has left had written is then all there.
  std::uint64_t state = lane.state.load(std::memory_order_acquire);
  const std::uint64_t head = lane.head.load(std::memory_order_acquire);
  std::uint64_t& tail = tails_[index];
  const std::uint64_t count = head - tail;
  if (count > kLaneWords) {
    tail = head;  // nothing that a Recorder has written
  } else if (count > 0) {
    std::vector<std::uint64_t> words(count);
    for (std::uint64_t i = 0; i < count; ++i) {
      words[i] = ring_.words[index][(tail + i) % kLaneWords].load(std::memory_order_relaxed);
    }
    take(index, tail, words);
    tail = head;
  }
  lane.tail.store(tail, std::memory_order_release);
  if (state == static_cast<std::uint64_t>(LaneState::kLeft)) {
    lane.state.compare_exchange_strong(state, static_cast<std::uint64_t>(LaneState::kFree));
  }
  return static_cast<double>(std::min<std::uint64_t>(count, kLaneWords)) / static_cast<double>(kLaneWords);
}

std::uint64_t RingReader::lost() const {
  std::uint64_t lost = ring_.homeless.load(std::memory_order_relaxed);
  for (const Lane& lane : ring_.lanes) lost += lane.lost.load(std::memory_order_relaxed);
  return lost;
}

}  // namespace ddp::detail
