#include "checkpoint/copy_streams.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include "comm/core/graph_capture.h"

namespace ddp {

c10::Stream CopyStreams::copy(const at::Tensor& target, const at::Tensor& source) {
  const auto stream = stream_of(source.device());
  source.record_stream(stream);  // it may have been allocated on a third stream
  const c10::StreamGuard on_side(stream);
  target.copy_(source, /*non_blocking=*/true);
  return stream;
}

c10::Stream CopyStreams::stream_of(c10::Device device) {
  detail::refuse_capture("a checkpoint's copy of a model on " + device.str(),
                         "replays would not bring it up to date. Save outside the capture");
  const c10::impl::VirtualGuardImpl devices(device.type());
  const auto key = std::pair(device.type(), device.index());
  auto stream = streams_.find(key);
  if (stream == streams_.end()) stream = streams_.emplace(key, devices.getStreamFromGlobalPool(device)).first;
  if (used_.emplace(key, stream->second).second) {
    c10::Event queued(device.type());
    queued.record(devices.getStream(device));
    queued.block(stream->second);
  }
  return stream->second;
}

std::vector<c10::Event> CopyStreams::end_copies() {
  std::vector<c10::Event> ends;
  for (const auto& [key, stream] : used_) {
    const c10::impl::VirtualGuardImpl devices(key.first);
    auto& end = ends.emplace_back(key.first);
    end.record(stream);
    end.block(devices.getStream(c10::Device(key.first, key.second)));
  }
  used_.clear();
  return ends;
}

}  // namespace ddp
