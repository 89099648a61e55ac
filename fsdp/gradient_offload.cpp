#include "fsdp/gradient_offload.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <exception>
#include <utility>

namespace ddp::fsdp {

void GradientOffload::start(at::Tensor reduced, Use use) {
  const at::NoGradGuard no_grad;
  Copy copy{.reduced = std::move(reduced), .on_host = {}, .use = std::move(use)};
  copy.on_host = at::empty(copy.reduced.sizes(), copy.reduced.options().device(at::kCPU).pinned_memory(pins_));
  stream_.wait_for_current();
  {
    const c10::OptionalStreamGuard side = stream_.enter();
    copy.on_host.copy_(copy.reduced, /*non_blocking=*/pins_);
  }
  // When the copy of this reduction begins, the copy of the previous one has ended. So waiting for the previous one
  // does not make the device idle.
  const std::optional<Copy> before = std::exchange(copy_, std::move(copy));
  stream_.wait_for_mark();
  stream_.mark();
  if (before) before->use(before->on_host);
}

void GradientOffload::finish() {
  const auto copy = std::exchange(copy_, std::nullopt);
  if (!copy) return;
  const at::NoGradGuard no_grad;
  stream_.wait_for_mark();
  copy->use(copy->on_host);
}

void GradientOffload::drop() noexcept {
  if (!std::exchange(copy_, std::nullopt)) return;
  try {
    stream_.wait_for_mark();
  } catch (const std::exception&) {
    // The error was reported by the call that failed.
  }
}

}  // namespace ddp::fsdp
