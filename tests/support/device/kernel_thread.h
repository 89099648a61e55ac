// The modes of a thread that runs kernels: plain CPU tensors, nothing recorded, nothing observed.
#pragma once

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

namespace ddp::test::device {

class KernelThread {
  const at::AutoDispatchBelowADInplaceOrView below_autograd_;
  const at::NoGradGuard no_grad_;
  const at::RecordFunctionGuard unobserved_{/*is_enabled=*/false};
};

}  // namespace ddp::test::device
