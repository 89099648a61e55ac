#include "comm/group/stream_use.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace ddp::detail {

std::optional<c10::Stream> current_stream(c10::Device device) {
  if (device.is_cpu()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

void record_stream(const at::Tensor& tensor, c10::Stream stream) {
  if (tensor.is_sparse()) {  // no memory of its own
    tensor._indices().record_stream(stream);
    tensor._values().record_stream(stream);
    return;
  }
  tensor.record_stream(stream);
}

void record_current_stream(const at::Tensor& tensor) {
  if (!tensor.defined()) return;
  if (const auto stream = current_stream(tensor.device())) record_stream(tensor, *stream);
}

void record_current_stream(const std::vector<at::Tensor>& tensors) {
  for (const at::Tensor& tensor : tensors) record_current_stream(tensor);
}

StreamOrigin::StreamOrigin(const std::vector<at::Tensor>& tensors) {
  if (!tensors.empty() && tensors[0].defined()) stream_ = current_stream(tensors[0].device());
}

void StreamOrigin::wait_in_current_stream() const {
  if (!stream_) return;
  const auto here = current_stream(stream_->device());
  if (here == stream_) return;
  c10::Event reached(stream_->device_type());
  reached.record(*here);
  reached.block(*stream_);
}

}  // namespace ddp::detail
