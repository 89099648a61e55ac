// Reduced gradients on their way to host memory, beside the computation.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>

#include <functional>
#include <optional>

#include "fsdp/side_stream.h"

namespace ddp::fsdp {

class GradientOffload {
 public:
  /// Gets the copy, in host memory that belongs to the caller.
  using Use = std::function<void(at::Tensor on_host)>;

  /// `pins`: copies go to page-locked memory, so that the host does not wait for the device when one begins.
  GradientOffload(c10::Device device, bool pins) : stream_(device), pins_(pins) {}

  /// Queues the copy of `reduced`, which was computed on the current stream, and then waits for the copy before: at
  /// most one is under way.
  void start(at::Tensor reduced, Use use);
  /// Waits for the copy that is under way, if any.
  void finish();
  /// The same without using it.
  void drop() noexcept;

 private:
  struct Copy {
    at::Tensor reduced;
    at::Tensor on_host;
    Use use;
  };

  SideStream stream_;
  bool pins_;
  std::optional<Copy> copy_;
};

}  // namespace ddp::fsdp
