// Which positions of an epoch's order belong to which rank: plain index arithmetic, no LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

/// Throws std::invalid_argument, naming the values, unless num_replicas ≥ 1 and 0 ≤ rank < num_replicas.
void check_replica(int num_replicas, int rank);

/// What happens to the last samples where the ranks do not divide the epoch.
enum class Tail {
  kRepeat,  ///< samples from the start of the order are repeated, so that every rank has as many
  kDrop,    ///< they are left out
  kUneven,  ///< the first ranks have one sample more; nothing is repeated or left out
};

/// How an order of samples is divided.
struct Sharding {
  int num_replicas = 1;       ///< number of ranks
  int rank = 0;               ///< 0 … num_replicas-1
  Tail tail = Tail::kRepeat;  ///< see Tail
  int64_t consumed = 0;       ///< samples that all ranks together have used up, from the start of the order
};

/// Number of samples that the rank gets out of an order of this length.
int64_t shard_size(int64_t length, const Sharding& sharding);

/// The samples of one rank: every num_replicas-th entry of `order`, beginning with entry consumed + rank. Where the
/// order ends before every rank has shard_size() samples, it starts again, as often as needed. With nothing consumed
/// this is the order of Python's torch.utils.data.DistributedSampler for the same permutation; continuing with the same
/// number of ranks gives what they would have got without the interruption, and with another number every sample that
/// is left is still used once. Throws std::invalid_argument as check_replica(), and for a negative `consumed`.
std::vector<int64_t> shard(std::span<const int64_t> order, const Sharding& sharding);

}  // namespace ddp
