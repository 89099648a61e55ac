#include "comm/shm/room.h"

#include <algorithm>

namespace ddp::shm {

bool Room::has_slot(uint64_t round) {
  if (round < taken_by_all_ + kSlots) return true;
  uint64_t least = round;  // enough
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) least = std::min(least, segment_.block(other).taken.load());
  }
  taken_by_all_ = least;
  return round < taken_by_all_ + kSlots;
}

int Room::reader_of_slot(uint64_t round) const {
  for (int other = 0; other < size(); ++other) {
    if (other != rank_ && segment_.block(other).taken.load() + kSlots <= round) return other;
  }
  return rank_;
}

void Room::filled(uint64_t round, const Signature& signature) {
  SlotHeader& header = segment_.slot_header(rank_, round);
  header.signature = signature;
  header.stamp.store(round + 1);
  wake_others(Cause::data_of(rank_));
}

void Room::combined(uint64_t round) {
  segment_.block(rank_).combined.store(round + 1);
  wake_others(Cause::data_of(rank_));
}

void Room::taken(uint64_t round) {
  segment_.block(rank_).taken.store(round + 1);
  wake_others(Cause::room_of(rank_));
}

void Room::wake_others(Cause cause) const {
  for (int other = 0; other < size(); ++other) {
    if (other != rank_) wake(segment_.block(other), cause);
  }
}

}  // namespace ddp::shm
