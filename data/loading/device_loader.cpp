#include "ddprun/data/device_loader.h"

#include <ATen/core/Tensor.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "comm/core/graph_capture.h"

namespace ddp::detail {

namespace {

void refuse_while_capturing() {
  refuse_capture("a loader's copy to the device",
                 "it runs on another stream. Fetch the batch before the capture, and before each replay copy the next "
                 "batch into the tensors of the captured one");
}

}  // namespace

DevicePlacement::DevicePlacement(c10::Device device) : device_(device) {
  if (device.is_cpu()) return;
  const c10::impl::VirtualGuardImpl guard(device.type());
  if (!device_.has_index()) device_ = guard.getDevice();
  stream_ = guard.getStreamFromGlobalPool(device_);
}

Batch DevicePlacement::prepare(Batch batch) const {
  if (!is_asynchronous()) return batch;
  const c10::DeviceGuard device(device_);  // otherwise the workers of each rank would create a context on device 0
  return {.data = batch.data.pin_memory(), .target = batch.target.pin_memory()};
}

void DevicePlacement::start(Batch prepared) {
  if (!is_asynchronous()) {
    copy_ = std::move(prepared);
    return;
  }
  refuse_while_capturing();
  const c10::StreamGuard stream(*stream_);
  copy_ = {.data = prepared.data.to(device_, /*non_blocking=*/true),
           .target = prepared.target.to(device_, /*non_blocking=*/true)};
  done_.emplace(device_.type());
  done_->record(*stream_);
}

Batch DevicePlacement::finish() {
  if (is_asynchronous()) {
    refuse_while_capturing();
    const c10::Stream current = c10::impl::VirtualGuardImpl(device_.type()).getStream(device_);
    done_->block(current);
    // The memory was allocated on the copy stream. It must not be reused there while the current stream still reads it.
    for (const at::Tensor& tensor : {copy_.data, copy_.target}) tensor.record_stream(current);
  }
  return std::exchange(copy_, {});
}

}  // namespace ddp::detail
