#include "syncbn/arithmetic.h"

#include "syncbn/cpu_arithmetic.h"
#include "syncbn/device_arithmetic.h"

namespace ddp::detail {

std::unique_ptr<Arithmetic> arithmetic_for(c10::Device device) {
  if (device.is_cpu()) return std::make_unique<CpuArithmetic>();
  return std::make_unique<DeviceArithmetic>();
}

}  // namespace ddp::detail
