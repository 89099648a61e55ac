// Determines which samples an epoch has, in which order, and which rank gets them, and stores the position of a job in
// an epoch. Index arithmetic without LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp {

/// Returns 0, 1, … n-1.
std::vector<int64_t> ascending(int64_t n);

/// Returns a random order of 0 … n-1: torch.randperm(n, generator=g) after g.manual_seed(seed).
std::vector<int64_t> permutation(int64_t n, uint64_t seed);

/// Returns `count` numbers from 0 to n-1; no number repeats before all others have occurred:
/// torch.utils.data.RandomSampler(range(n), num_samples=count, generator=g) after g.manual_seed(seed).
std::vector<int64_t> random_order(int64_t n, int64_t count, uint64_t seed);

/// Returns `count` independent numbers from 0 to n-1: the same with replacement=True. n must be positive unless count
/// is 0.
std::vector<int64_t> random_draws(int64_t n, int64_t count, uint64_t seed);

/// Returns the number of samples for each fraction of `size`, rounded down. The remaining samples are given to the
/// first fractions, one each, as in torch.utils.data.random_split. Throws std::invalid_argument for a fraction outside
/// 0 … 1, and if the fractions do not add up to 1.
std::vector<int64_t> split_lengths(int64_t size, std::span<const double> fractions);

/// Returns the samples of each split of `size` samples: consecutive pieces of permutation(size, seed), as in
/// torch.utils.data.random_split with a generator of that seed. Throws std::invalid_argument for a negative length, and
/// if the lengths do not add up to `size`.
std::vector<std::vector<int64_t>> random_split_indices(int64_t size, std::span<const int64_t> lengths, uint64_t seed);

/// Throws std::invalid_argument, naming the values, unless num_replicas ≥ 1 and 0 ≤ rank < num_replicas.
void check_replica(int num_replicas, int rank);

/// How the last samples are treated if the number of ranks does not divide the number of samples of an epoch.
enum class Tail {
  kRepeat,  ///< samples from the start of the order are repeated, so that every rank has the same number of samples
  kDrop,    ///< the last samples are left out
  kUneven,  ///< the first ranks have one more sample; nothing is repeated or left out
};

/// Specifies how an order of samples is divided.
struct Sharding {
  int num_replicas = 1;       ///< number of ranks
  int rank = 0;               ///< 0 … num_replicas-1
  Tail tail = Tail::kRepeat;  ///< see Tail
  int64_t consumed = 0;  ///< samples, counted from the start of the order, that all ranks together have already used
};

/// Returns the number of samples that the rank gets from an order of this length.
int64_t shard_size(int64_t length, const Sharding& sharding);

/// Returns the samples of one rank: every num_replicas-th entry of `order`, beginning with entry consumed + rank. If
/// the order ends before every rank has shard_size() samples, it starts again, as often as needed. If nothing is
/// consumed, this is the order of Python's torch.utils.data.DistributedSampler for the same permutation. A resume with
/// the same number of ranks gives each rank the samples that it would have had without the interruption. With another
/// number of ranks, every remaining sample is still used once. Throws std::invalid_argument as check_replica() does,
/// and for a negative `consumed`.
std::vector<int64_t> shard(std::span<const int64_t> order, const Sharding& sharding);

/// The state that ranks need to resume in mid-epoch, with any number of ranks. It is the same on all ranks; save that
/// of rank 0.
struct SamplerState {
  uint64_t seed = 0;     ///< the sampler's seed; an order is drawn with seed + epoch
  int64_t epoch = 0;     ///< the epoch that has begun
  int64_t consumed = 0;  ///< samples of the epoch that all ranks together have used
  int64_t length = 0;    ///< samples in the epoch, before any are repeated or left out

  /// Whether all four are equal.
  bool operator==(const SamplerState&) const = default;
};

/// Returns these four numbers as one JSON object, in the format of python/ddprun_checkpoint.py.
std::string to_json(const SamplerState& state);
/// Throws std::invalid_argument if `text` is not such an object.
SamplerState sampler_state_from_json(const std::string& text);

}  // namespace ddp
