#include "samplers/shard.h"

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

int64_t shard_size(int64_t dataset_size, int num_replicas, bool drop_last) {
  const int64_t whole = dataset_size / num_replicas;
  const bool divides = dataset_size % num_replicas == 0;
  return divides || drop_last ? whole : whole + 1;
}

std::vector<int64_t> shard(std::span<const int64_t> order, int num_replicas, int rank, bool drop_last) {
  check_replica(num_replicas, rank);
  const auto dataset_size = static_cast<int64_t>(order.size());
  std::vector<int64_t> samples(static_cast<size_t>(shard_size(dataset_size, num_replicas, drop_last)));
  int64_t position = rank;
  for (int64_t& sample : samples) {
    sample = order[static_cast<size_t>(position % dataset_size)];
    position += num_replicas;
  }
  return samples;
}

}  // namespace ddp
