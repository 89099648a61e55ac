// Internal: what a backend offers whose collectives need no thread, no queue and no Work: to be called and to be done.
#pragma once

#include "comm/backends/c10d_compat.h"
#include "comm/shm/meanwhile.h"

namespace ddp::detail {

class ImmediateBackend {
 public:
  virtual ~ImmediateBackend() = default;

  /// As Backend::allreduce(), with the group's timeout, and wait() of one contiguous tensor of real numbers on the CPU.
  /// Throws what it failed with.
  virtual void all_reduce_now(const at::Tensor& tensor, const c10d::ReduceOp& op, shm::Meanwhile& meanwhile) = 0;
};

}  // namespace ddp::detail
