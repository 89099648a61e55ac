#include "ddprun/ddp/comm_hooks.h"

#include <string>
#include <utility>

#include "comm/group/stream_use.h"

namespace ddp::hooks {
namespace {

CommHook compress(const char* name, at::ScalarType dtype, const GroupHandle& group) {
  return named_hook(name, [dtype, group](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    at::Tensor compressed = buffer.to(dtype).div_(group.size());
    return then(all_reduce_future(std::move(compressed), group), [buffer](const at::Tensor& sum) {
      detail::record_current_stream(buffer);  // on CUDA this runs on one of the future's streams
      buffer.copy_(sum);                      // in place, which needs less memory
      return buffer;
    });
  });
}

CommHook compress_around(const std::string& name, at::ScalarType dtype, CommHook hook) {
  std::string whole = name + "(" + hook_name(hook) + ")";
  return named_hook(std::move(whole), [dtype, hook = std::move(hook)](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    bucket.set_buffer(buffer.to(dtype));
    return then(hook(bucket), [buffer](const at::Tensor& result) {
      detail::record_current_stream(buffer);
      buffer.copy_(result);
      return buffer;
    });
  });
}

}  // namespace

CommHook all_reduce(const GroupHandle& group) {
  return named_hook("all_reduce", [group](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    buffer.div_(group.size());  // before the sum, which could overflow otherwise
    return all_reduce_future(buffer, group);
  });
}

CommHook fp16_compress(const GroupHandle& group) {
  return compress("fp16_compress", at::kHalf, group);
}
CommHook bf16_compress(const GroupHandle& group) {
  return compress("bf16_compress", at::kBFloat16, group);
}
CommHook fp16_compress_wrapper(CommHook hook) {
  return compress_around("fp16_compress_wrapper", at::kHalf, std::move(hook));
}
CommHook bf16_compress_wrapper(CommHook hook) {
  return compress_around("bf16_compress_wrapper", at::kBFloat16, std::move(hook));
}

CommHook noop() {
  return named_hook("noop", [](GradientBucket& bucket) { return completed_future(bucket.buffer()); });
}

}  // namespace ddp::hooks
