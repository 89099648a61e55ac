#include "ddprun/detail/optim/partition.h"

#include <algorithm>
#include <numeric>

namespace ddp::optim {

std::vector<std::vector<size_t>> Partition::add_group(const std::vector<int64_t>& sizes) {
  std::vector<size_t> largest_first(sizes.size());
  std::iota(largest_first.begin(), largest_first.end(), size_t{0});
  std::stable_sort(largest_first.begin(), largest_first.end(), [&](size_t a, size_t b) { return sizes[a] > sizes[b]; });
  std::vector<std::vector<size_t>> by_rank(elements_.size());
  for (const size_t index : largest_first) {
    const auto least = std::min_element(elements_.begin(), elements_.end());
    *least += sizes[index];
    by_rank[static_cast<size_t>(least - elements_.begin())].push_back(index);
  }
  return by_rank;
}

}  // namespace ddp::optim
