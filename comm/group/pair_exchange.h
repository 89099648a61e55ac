// Internal: small sums over two ranks without gloo's ring, which costs a worker thread and three messages in each
// direction; for two ranks one message each way and an addition are the same sum, bit for bit.
#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <memory>
#include <mutex>

#include <ddprun/base/rank_info.h>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

/// The tag of its messages, which users' may not have.
constexpr int kPairExchangeTag = 0x7fffffff;

/// Sums that are under way between this rank and the only other one of a group.
class PairExchange {
 public:
  /// Null unless `group` has two ranks, carries CPU tensors by gloo alone (no checks of TORCH_DISTRIBUTED_DEBUG=DETAIL
  /// around it) and both ranks run this library, as their keys in `store` say: one that runs Python expects the ring.
  /// The ranks come to the same answer. Throws what the store throws.
  static std::unique_ptr<PairExchange> make(const RankInfo& info, c10d::ProcessGroup& group, c10d::Store& store);

  PairExchange(c10::intrusive_ptr<c10d::Backend> gloo, int rank) : gloo_(std::move(gloo)), rank_(rank) {}

  /// Larger tensors gain nothing, and the ring reduces other kinds.
  static bool takes(const at::Tensor& tensor);

  /// One sum: its messages are on their way.
  class Sum {
   public:
    Sum(PairExchange& exchange, at::Tensor tensor);

   private:
    friend class PairExchange;
    at::Tensor tensor_;
    at::Tensor received_;
    c10::intrusive_ptr<c10d::Work> recv_;
    c10::intrusive_ptr<c10d::Work> send_;
  };

  /// Starts to sum `tensor` over the two ranks, without waiting. Both ranks must call it, in the same order, with equal
  /// sizes and dtypes. Nobody may touch the tensor before finish().
  std::shared_ptr<Sum> start(const at::Tensor& tensor);
  /// Waits for the other rank and leaves the sum in the tensor. Throws what gloo throws.
  void finish(const std::shared_ptr<Sum>& sum);

 private:
  const c10::intrusive_ptr<c10d::Backend> gloo_;
  const int rank_;
  std::mutex mutex_;
  // Also those that nobody will finish, because a backward failed: gloo must be able to deliver them.
  std::deque<std::shared_ptr<Sum>> under_way_;
};

}  // namespace ddp::detail
