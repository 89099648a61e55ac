// Internal: small sums over two ranks without gloo's ring, which costs a worker thread and three messages in each
// direction. For two ranks one message each way and an addition give the same sum, bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

/// The tag of its messages, which users' may not have.
constexpr int kPairExchangeTag = 0x7fffffff;

/// The sums that a rank has started with the only other one of a group.
class PairExchange {
 public:
  /// Starts to sum `tensor`, contiguous and on the CPU, over the two ranks of `gloo`; see
  /// AllReduceBackend::all_reduce_in_wait(). wait() of the Work leaves the sum in the tensor, and throws what gloo
  /// throws.
  c10::intrusive_ptr<c10d::Work> start(c10d::Backend& gloo, const at::Tensor& tensor);

 private:
  struct Sum;
  class Sums;
  class SumWork;

  std::shared_ptr<Sums> started_ = make_sums();
  static std::shared_ptr<Sums> make_sums();
};

}  // namespace ddp::detail
