// Which samples an epoch has, in which order, which rank gets them, and the position of a job in an epoch: plain index
// arithmetic, no LibTorch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ddp {

/// 0, 1, … n-1.
std::vector<int64_t> ascending(int64_t n);

/// A random order of 0 … n-1: torch.randperm(n, generator=g) after g.manual_seed(seed).
std::vector<int64_t> permutation(int64_t n, uint64_t seed);

/// `count` numbers from 0 to n-1, each once before any comes twice: torch.utils.data.RandomSampler(range(n),
/// num_samples=count, generator=g) after g.manual_seed(seed).
std::vector<int64_t> random_order(int64_t n, int64_t count, uint64_t seed);

/// `count` independent numbers from 0 to n-1: the same with replacement=True. n must be positive unless count is 0.
std::vector<int64_t> random_draws(int64_t n, int64_t count, uint64_t seed);

/// The number of samples for each fraction of `size`: rounded down; the remaining samples are given to the first
/// fractions, one each, as in torch.utils.data.random_split. Throws std::invalid_argument for a fraction outside 0 … 1
/// and unless they add up to 1.
std::vector<int64_t> split_lengths(int64_t size, std::span<const double> fractions);

/// Which of `size` samples each split has: pieces of permutation(size, seed), as torch.utils.data.random_split cuts
/// them with a generator of that seed. Throws std::invalid_argument for a negative length and unless they add up to
/// `size`.
std::vector<std::vector<int64_t>> random_split_indices(int64_t size, std::span<const int64_t> lengths, uint64_t seed);

/// Throws std::invalid_argument, naming the values, unless num_replicas ≥ 1 and 0 ≤ rank < num_replicas.
void check_replica(int num_replicas, int rank);

/// How the last samples are treated if the number of ranks does not divide the number of samples of an epoch.
enum class Tail {
  kRepeat,  ///< samples from the start of the order are repeated, so that every rank has the same number
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
/// this is the order of Python's torch.utils.data.DistributedSampler for the same permutation; a resume with the same
/// number of ranks gives each rank the samples that it would have had without the interruption. With another number of
/// ranks, every remaining sample is still used once. Throws std::invalid_argument as check_replica(), and for a
/// negative `consumed`.
std::vector<int64_t> shard(std::span<const int64_t> order, const Sharding& sharding);

/// The state that ranks need to resume in mid-epoch, with any number of ranks. It is the same on all ranks; save that
/// of rank 0.
struct SamplerState {
  uint64_t seed = 0;     ///< the sampler's; an order is drawn with seed + epoch
  int64_t epoch = 0;     ///< the epoch that has begun
  int64_t consumed = 0;  ///< samples of the epoch that all ranks together have used
  int64_t length = 0;    ///< samples in the epoch, before any is repeated or left out

  /// Whether all four are equal.
  bool operator==(const SamplerState&) const = default;
};

/// One JSON object of these four numbers, as python/ddprun_checkpoint.py reads and writes it.
std::string to_json(const SamplerState& state);
/// Throws std::invalid_argument when `text` is anything else.
SamplerState sampler_state_from_json(const std::string& text);

}  // namespace ddp
