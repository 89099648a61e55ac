// Seeding for data parallel programs.
#pragma once

#include <cstdint>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Seeds the default generators of the CPU and of the group's device equally on all ranks, so that modules constructed
/// next draw equal initial weights, and remembers the seed: wrapping the model in DistributedDataParallel then moves
/// each rank to a random stream of its own (dropout, augmentation), as seed_per_rank() does. Programs that don't wrap
/// call that themselves. Not a collective; every rank should pass the same seed.
void manual_seed(uint64_t seed, const GroupHandle& group);

/// Moves this rank to its own random stream now: the default generators of the CPU and of the group's device are seeded
/// from (seed, rank). The same seed, rank and program give the same numbers, whatever the world size. Not a collective.
void seed_per_rank(uint64_t seed, const GroupHandle& group);

/// What DistributedDataParallel does at its construction: seed_per_rank() with the seed of an earlier manual_seed() on
/// this group, once; nothing without one.
void take_rank_stream(const GroupHandle& group);

}  // namespace ddp
