#include <algorithm>
#include <string>

#include "ddprun/data/dataset_wrappers.h"

namespace ddp::detail {

int64_t checked_index(int64_t index, int64_t size, const char* what) {
  if (index >= -size && index < size) return index < 0 ? index + size : index;
  throw std::out_of_range(std::string(what) + ": index " + std::to_string(index) + " is out of range for " +
                          std::to_string(size) + " samples");
}

size_t dataset_of(int64_t index, const std::vector<int64_t>& ends) {
  return static_cast<size_t>(std::ranges::upper_bound(ends, index) - ends.begin());
}

std::vector<int64_t> within_dataset(std::span<const int64_t> indices, size_t number, const std::vector<int64_t>& ends) {
  const int64_t begin = number == 0 ? 0 : ends[number - 1];
  std::vector<int64_t> within;
  for (const int64_t given : indices) {
    const int64_t index = checked_index(given, ends.back(), "ConcatDataset");
    if (index >= begin && index < ends[number]) within.push_back(index - begin);
  }
  return within;
}

int64_t common_size(const std::vector<int64_t>& sizes) {
  for (size_t i = 1; i < sizes.size(); ++i) {
    if (sizes[i] == sizes[0]) continue;
    throw std::invalid_argument("StackDataset: expected datasets of one size, but dataset 0 has " +
                                std::to_string(sizes[0]) + " samples and dataset " + std::to_string(i) + " has " +
                                std::to_string(sizes[i]));
  }
  return sizes.at(0);
}

}  // namespace ddp::detail
