#include "syncbn/batch_norm_ops.h"

#include "syncbn/cpu_batch_norm_ops.h"
#include "syncbn/device_batch_norm_ops.h"

namespace ddp::detail {

std::unique_ptr<BatchNormOps> batch_norm_ops_for(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuBatchNormOps>();
  return std::make_unique<DeviceBatchNormOps>();
}

}  // namespace ddp::detail
