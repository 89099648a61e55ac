// Internal: gradient buckets in the timeline: each from when it is ready until its sum is there, and the time in which
// backward has nothing to do but to wait for them.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>

namespace ddp::detail {

/// One bucket's; 0 while nothing is recorded.
struct BucketEvent {
  uint64_t on_host = 0;
  uint64_t on_device = 0;

  /// Its transfer begins.
  void mark_start() const;
  /// Its sum is there, on a device once the current stream is.
  void end() const;
};

/// In the backward thread.
class BucketEvents {
 public:
  /// The next bucket of this backward is ready. `at_end` is what runs a function when backward has computed all there
  /// is.
  BucketEvent begin(const at::Tensor& bucket, const std::function<void(std::function<void()>)>& at_end);

 private:
  int64_t backward_ = -1;  // autograd's number of it
  uint64_t next_ = 0;
};

}  // namespace ddp::detail
