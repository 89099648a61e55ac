// Internal: gradients that lie in buckets without being autograd views of them.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace ddp::detail {

/// c10d::Reducer leaves gradients as views of its buckets, which optimizer.zero_grad() refuses to detach.
class GradientAliases {
 public:
  explicit GradientAliases(std::vector<at::Tensor> parameters);

  /// Replaces each gradient that is a view by a tensor on the same memory that is none; the same one from step to step
  /// while the bucket stays the same.
  void replace_views();
  /// The same for one parameter.
  void replace_view(size_t parameter);
  /// Lets go of the buckets' memory.
  void forget();

 private:
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> aliases_;
};

}  // namespace ddp::detail
