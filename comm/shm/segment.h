// Internal: memory that the ranks of a group on one host share. It has no name in any file system and goes with the
// last process that maps it, however that ends. No LibTorch.
#pragma once

#include <memory>
#include <string>

#include "comm/shm/layout.h"

namespace ddp::shm {

/// A handle; copies refer to the same mapping.
class Segment {
 public:
  /// Memory for `ranks` ranks. Throws std::runtime_error with the reason if that is impossible.
  static Segment create(int ranks);
  /// Maps what another process of this host, or this one, has created and not forgotten: `ticket` is its ticket().
  /// Throws std::runtime_error with the reason, also when the ticket leads to something else, as one from another
  /// container does.
  static Segment attach(const std::string& ticket);

  /// Text by which others attach. Valid until forget_ticket() and while this process lives.
  std::string ticket() const;
  /// No further process is to attach: from now on only mappings keep the memory.
  void forget_ticket();

  int ranks() const { return ranks_; }
  RankBlock& block(int rank) const { return reinterpret_cast<RankBlock*>(data_ + places_.blocks)[rank]; }
  SlotHeader& slot_header(int rank, uint64_t round) const {
    return reinterpret_cast<SlotHeader*>(data_ + places_.slot_headers)[index_of(rank, round)];
  }
  /// kSlotBytes of them.
  std::byte* slot(int rank, uint64_t round) const { return data_ + places_.slots + index_of(rank, round) * kSlotBytes; }
  Channel& channel(int from, int to) const;

  /// Bytes that a group takes at most, when every pair of ranks sends messages.
  static size_t most_bytes(int ranks) { return Places(static_cast<size_t>(ranks)).end; }

 private:
  class Mapping;
  Segment(std::shared_ptr<Mapping> mapping, int ranks);
  static size_t index_of(int rank, uint64_t round) { return static_cast<size_t>(rank) * kSlots + round % kSlots; }

  std::shared_ptr<Mapping> mapping_;
  int ranks_;
  Places places_;
  std::byte* data_;
};

/// This process's start, in the kernel's clock ticks; 0 where /proc does not show it.
uint64_t start_time_of(int pid);

}  // namespace ddp::shm
