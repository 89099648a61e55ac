// Internal: what our backends for CPU tensors can do for an all-reduce beyond c10d's interface.
#pragma once

#include <ATen/core/Tensor.h>

#include "comm/backends/c10d_compat.h"
#include "comm/core/all_reduce_plan.h"
#include "comm/shm/operation.h"

namespace ddp::detail {

class AllReduceBackend {
 public:
  virtual ~AllReduceBackend() = default;

  virtual AllReduceTraits all_reduce_traits() const = 0;

  /// With AllReduceTraits::in_wait: starts the sum of `tensor`, in place, without waiting for other ranks. All ranks
  /// start the same ones in the same order. The sum makes progress in wait() of what is returned, which throws what it
  /// failed with. The tensor must not be used before.
  virtual c10::intrusive_ptr<c10d::Work> all_reduce_in_wait(const at::Tensor& tensor) = 0;
};

/// What such a backend with AllReduceTraits::in_call is as well.
class InCallBackend {
 public:
  virtual ~InCallBackend() = default;

  /// Backend::allreduce(), with the group's timeout, and wait() of one contiguous tensor of real numbers. Throws what
  /// it failed with.
  virtual void all_reduce_in_call(const at::Tensor& tensor, const c10d::ReduceOp& op, shm::WaitObserver& observer) = 0;
};

}  // namespace ddp::detail
