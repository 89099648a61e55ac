// Internal: work on a stream of its own.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>

#include "comm/group/stream_use.h"

namespace ddp::detail {

/// Runs what follows on `stream`, made on first use, which begins where the current one is; nothing on the CPU.
class OnSideStream {
 public:
  OnSideStream(std::optional<c10::Stream>& stream, const at::Tensor& used) : guard_(begin(stream, used)) {}

 private:
  static std::optional<c10::Stream> begin(std::optional<c10::Stream>& stream, const at::Tensor& used) {
    const c10::Device device = used.device();
    const auto current = current_stream(device);
    if (!current) return std::nullopt;
    if (!stream) stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    c10::Event reached(device.type());
    reached.record(*current);
    reached.block(*stream);
    used_on(used, *stream);
    return stream;
  }

  c10::OptionalStreamGuard guard_;
};

}  // namespace ddp::detail
