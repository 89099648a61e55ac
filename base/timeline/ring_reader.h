// Empties a timeline's memory, as its one reader. The memory is the program's: nothing in it is believed that could
// lead out of it.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>

#include "base/timeline/layout.h"

namespace ddp::detail {

class RingReader {
 public:
  // Whole records of lane number `lane`, in their order; `position` is that of the first word since ever.
  using Take = std::function<void(std::size_t lane, std::uint64_t position, std::span<const std::uint64_t> words)>;

  // `ring` must outlive this.
  explicit RingReader(TimelineRing& ring);

  // Hands over what has arrived since the last call. Returns the largest share of a lane's room that was in use, 0
  // to 1.
  double read(const Take& take);
  // Events for which there was no room.
  std::uint64_t lost() const;

 private:
  double read_lane(std::size_t lane, const Take& take);

  TimelineRing& ring_;
  std::array<std::uint64_t, kLanes> tails_{};
};

}  // namespace ddp::detail
