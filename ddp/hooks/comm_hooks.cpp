#include "ddprun/ddp/comm_hooks.h"

#include <utility>

#include "comm/group/stream_use.h"

namespace ddp::hooks {
namespace {

CommHook compress(at::ScalarType dtype, const GroupHandle& group) {
  return [dtype, group](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    at::Tensor compressed = buffer.to(dtype).div_(group.size());
    return then(all_reduce_future(std::move(compressed), group), [buffer](const at::Tensor& sum) {
      detail::used_here(buffer);  // on CUDA this is a stream of the future's
      buffer.copy_(sum);          // in place, for a lower peak
      return buffer;
    });
  };
}

CommHook compress_around(at::ScalarType dtype, CommHook hook) {
  return [dtype, hook = std::move(hook)](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    bucket.set_buffer(buffer.to(dtype));
    return then(hook(bucket), [buffer](const at::Tensor& result) {
      detail::used_here(buffer);
      buffer.copy_(result);
      return buffer;
    });
  };
}

}  // namespace

CommHook all_reduce(const GroupHandle& group) {
  return [group](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    buffer.div_(group.size());  // first: a sum may overflow
    return all_reduce_future(buffer, group);
  };
}

CommHook fp16_compress(const GroupHandle& group) {
  return compress(at::kHalf, group);
}
CommHook bf16_compress(const GroupHandle& group) {
  return compress(at::kBFloat16, group);
}
CommHook fp16_compress_wrapper(CommHook hook) {
  return compress_around(at::kHalf, std::move(hook));
}
CommHook bf16_compress_wrapper(CommHook hook) {
  return compress_around(at::kBFloat16, std::move(hook));
}

CommHook noop() {
  return [](GradientBucket& bucket) { return completed_future(bucket.buffer()); };
}

}  // namespace ddp::hooks
