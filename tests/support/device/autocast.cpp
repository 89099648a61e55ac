// Autocast under LibTorch's own name for devices from elsewhere: the lists that it has for CUDA. Under CUDA's name
// LibTorch has them already.
#include <ATen/autocast_mode.h>

#include "tests/support/device/operators.h"

namespace ddp::test::device {

// The macros of the header name what they use from at::autocast and torch.
using namespace at;            // NOLINT(google-build-using-namespace)
using namespace at::autocast;  // NOLINT(google-build-using-namespace)

void register_autocast(torch::Library& m) {
#define DDPRUN_LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
#define DDPRUN_FP32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
#define DDPRUN_SET_DTYPE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
#define DDPRUN_PROMOTE(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_LOWER_PRECISION_FP(DDPRUN_LOWER)
  AT_FORALL_FP32(DDPRUN_FP32)
  AT_FORALL_FP32_SET_OPT_DTYPE(DDPRUN_SET_DTYPE)
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
  AT_FORALL_PROMOTE(DDPRUN_PROMOTE)
#undef DDPRUN_LOWER
#undef DDPRUN_FP32
#undef DDPRUN_SET_DTYPE
#undef DDPRUN_PROMOTE
}

}  // namespace ddp::test::device
