// Modules' buffers during a second run, which leaves them as they were.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp::recompute {

/// Gives the buffers of `modules` the values back that they had when it was made. Autograd does not count this as a
/// change in place.
class KeptBuffers {
 public:
  explicit KeptBuffers(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);
  ~KeptBuffers();
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // and their values
};

}  // namespace ddp::recompute
