// Which positions of an epoch's order belong to which rank: plain index arithmetic, no LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ddp {

/// Throws std::invalid_argument, naming the values, unless num_replicas ≥ 1 and 0 ≤ rank < num_replicas.
void check_replica(int num_replicas, int rank);

/// Number of samples that every rank gets out of `dataset_size`. When they do not divide: with drop_last the tail is
/// left out (so a dataset smaller than num_replicas gives 0), otherwise samples are repeated.
int64_t shard_size(int64_t dataset_size, int num_replicas, bool drop_last);

/// The samples of one rank: every num_replicas-th entry of `order`, beginning with entry `rank`. Where the order ends
/// before every rank has shard_size() samples, it starts again, as often as needed. This is the order of Python's
/// torch.utils.data.DistributedSampler for the same permutation. Throws as check_replica().
std::vector<int64_t> shard(std::span<const int64_t> order, int num_replicas, int rank, bool drop_last);

}  // namespace ddp
