#include "optim/device_groups.h"

#include <algorithm>

namespace ddp::optim {

std::vector<std::vector<at::Tensor>> by_device_and_dtype(const std::vector<at::Tensor>& tensors) {
  std::vector<std::vector<at::Tensor>> groups;
  for (const auto& tensor : tensors) {
    const auto fits = [&](const auto& group) {
      return group.front().device() == tensor.device() && group.front().scalar_type() == tensor.scalar_type();
    };
    const auto found = std::find_if(groups.begin(), groups.end(), fits);
    if (found == groups.end()) {
      groups.push_back({tensor});
    } else {
      found->push_back(tensor);
    }
  }
  return groups;
}

}  // namespace ddp::optim
