// Internal: c10d's all-reduce without its dispatcher, which costs more than a small sum in shared memory.
#pragma once

#include <vector>

#include "comm/backends/c10d_compat.h"

namespace ddp::detail {

/// As ProcessGroup::allreduce() of one tensor.
inline c10::intrusive_ptr<c10d::Work> direct_all_reduce(c10d::ProcessGroup& group, std::vector<at::Tensor>& tensors,
                                                        const c10d::AllreduceOptions& options = {}) {
  const at::Tensor& tensor = tensors.at(0);
  const bool is_plain = tensor.is_cpu() && tensor.layout() == at::kStrided && group.hasBackends();
  return is_plain ? group.getBackend(c10::kCPU)->allreduce(tensors, options) : group.allreduce(tensors, options);
}

}  // namespace ddp::detail
