// Seeding for data parallel programs.
#pragma once

#include <cstdint>

#include <ddprun/comm/process_group.h>

namespace ddp {

/// Seeds the default generators of the CPU and of the group's device equally on all ranks, so that modules constructed
/// afterwards get equal initial weights on all ranks. It also stores the seed: when the model is wrapped in
/// DistributedDataParallel, each rank gets its own random stream (for dropout, augmentation), as by seed_per_rank().
/// Programs without DistributedDataParallel must call seed_per_rank() themselves. Not a collective; every rank should
/// pass the same seed.
void manual_seed(uint64_t seed, const GroupHandle& group);

/// Moves this rank to its own random stream now: the default generators of the CPU and of the group's device are seeded
/// from (seed, rank). The same seed, rank and program give the same numbers, whatever the world size. Not a collective.
void seed_per_rank(uint64_t seed, const GroupHandle& group);

/// Calls seed_per_rank() once with the seed of an earlier manual_seed() on this group; does nothing if there was none.
/// The constructor of DistributedDataParallel calls it.
void take_rank_stream(const GroupHandle& group);

}  // namespace ddp
