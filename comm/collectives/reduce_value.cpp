#include "ddprun/comm/collectives.h"

namespace ddp {

at::Tensor reduce_value(at::Tensor value, const GroupHandle& group, bool average) {
  all_reduce(value, group, average ? ReduceOp::kAvg : ReduceOp::kSum);
  return value;
}

at::Tensor reduce_tensor(const at::Tensor& value, const GroupHandle& group, bool average) {
  return reduce_value(value.detach().clone(at::MemoryFormat::Contiguous), group, average);
}

}  // namespace ddp
