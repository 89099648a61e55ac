#include "ddprun/samplers/shard.h"

#include <algorithm>
#include <cstddef>
#include <stdexcept>
#include <string>

namespace ddp {

void check_replica(int num_replicas, int rank) {
  if (num_replicas < 1) {
    throw std::invalid_argument("Invalid num_replicas " + std::to_string(num_replicas) +
                                ", num_replicas (the number of ranks that share the dataset) should be at least 1");
  }
  if (rank < 0 || rank >= num_replicas) {
    throw std::invalid_argument("Invalid rank " + std::to_string(rank) + ", rank should be in the interval [0, " +
                                std::to_string(num_replicas - 1) + "]");
  }
}

int64_t shard_size(int64_t length, const Sharding& sharding) {
  const int64_t left = std::max<int64_t>(0, length - sharding.consumed);
  const int64_t whole = left / sharding.num_replicas;
  const int64_t rest = left % sharding.num_replicas;
  switch (sharding.tail) {
    case Tail::kDrop:
      return whole;
    case Tail::kUneven:
      return whole + (sharding.rank < rest ? 1 : 0);
    case Tail::kRepeat:
      break;
  }
  return rest == 0 ? whole : whole + 1;
}

std::vector<int64_t> shard(std::span<const int64_t> order, const Sharding& sharding) {
  check_replica(sharding.num_replicas, sharding.rank);
  if (sharding.consumed < 0) {
    throw std::invalid_argument("Invalid number of consumed samples " + std::to_string(sharding.consumed));
  }
  const auto length = static_cast<int64_t>(order.size());
  std::vector<int64_t> samples(static_cast<size_t>(shard_size(length, sharding)));
  int64_t position = sharding.consumed + sharding.rank;
  for (int64_t& sample : samples) {
    sample = order[static_cast<size_t>(position % length)];
    position += sharding.num_replicas;
  }
  return samples;
}

}  // namespace ddp
