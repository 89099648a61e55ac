// Keeps a second run from changing the buffers of modules.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <utility>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp::recompute {

/// The destructor restores the values that the buffers of `modules` had at construction. Autograd does not count this
/// as an in-place change.
class KeptBuffers {
 public:
  explicit KeptBuffers(const std::vector<std::shared_ptr<torch::nn::Module>>& modules);
  ~KeptBuffers();
  KeptBuffers(const KeptBuffers&) = delete;
  KeptBuffers& operator=(const KeptBuffers&) = delete;

 private:
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // each buffer and its value
};

}  // namespace ddp::recompute
