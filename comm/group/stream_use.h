// Internal: device memory that is allocated on one stream and used on another. Device-generic; nothing happens on the
// CPU.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <optional>
#include <vector>

namespace ddp::detail {

/// The current stream of `device` for the calling thread; none on the CPU.
std::optional<c10::Stream> current_stream(c10::Device device);

/// Tells the allocator that `stream` uses the memory of `tensor`, also a sparse one: once freed, the memory is given
/// out again only when the stream has executed what is queued on it by then.
void record_stream(const at::Tensor& tensor, c10::Stream stream);

/// The same for the current stream of the tensor's device. Undefined tensors are left out.
void record_current_stream(const at::Tensor& tensor);
void record_current_stream(const std::vector<at::Tensor>& tensors);

/// The stream on which temporary tensors were made.
class StreamOrigin {
 public:
  /// The current stream of the device of the first tensor; none without tensors or on the CPU.
  explicit StreamOrigin(const std::vector<at::Tensor>& tensors);

  /// If the current stream is another one by now: that one waits for what is queued here so far, so that memory that
  /// was allocated there may be freed.
  void wait_in_current_stream() const;

 private:
  std::optional<c10::Stream> stream_;
};

}  // namespace ddp::detail
