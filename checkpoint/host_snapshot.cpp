#include "checkpoint/host_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "comm/core/graph_capture.h"

namespace ddp {

// The streams of devices other than the CPU, and what marks the end of their copies.
struct HostSnapshot::Copies {
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Stream> streams{};
  std::vector<c10::Event> ends{};
};

namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.defined() && buffer.sizes() == tensor.sizes() && buffer.scalar_type() == tensor.scalar_type();
}

auto memory_of(const at::Tensor& tensor) {
  return std::tuple(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(),
                    tensor.strides().vec());
}

}  // namespace

HostSnapshot::HostSnapshot() : copies_(std::make_unique<Copies>()) {}
HostSnapshot::~HostSnapshot() = default;

TensorMap HostSnapshot::take(const std::string& group, const TensorMap& tensors) {
  const at::NoGradGuard no_grad;
  TensorMap snapshot;
  std::map<decltype(memory_of(at::Tensor())), at::Tensor> copied;
  std::map<std::pair<c10::DeviceType, c10::DeviceIndex>, c10::Stream> used;
  for (const auto& [name, tensor] : tensors) {
    if (tensor.numel() > 0) {
      if (const auto same = copied.find(memory_of(tensor)); same != copied.end()) {
        snapshot.emplace(name, same->second);
        continue;
      }
    }
    auto& buffer = buffers_[group + "/" + name];
    const auto device = tensor.device();
    if (!fits(buffer, tensor)) {
      buffer = at::empty(tensor.sizes(), at::TensorOptions(tensor.scalar_type()).pinned_memory(!device.is_cpu()));
    }
    if (device.is_cpu()) {
      buffer.copy_(tensor);
    } else {
      detail::refuse_capture("a checkpoint's copy of a model on " + device.str(),
                             "replays would not bring it up to date. Save outside the capture");
      const c10::impl::VirtualGuardImpl devices(device.type());
      const auto key = std::pair(device.type(), device.index());
      auto stream = copies_->streams.find(key);
      if (stream == copies_->streams.end()) {
        stream = copies_->streams.emplace(key, devices.getStreamFromGlobalPool(device)).first;
      }
      if (used.emplace(key, stream->second).second) {
        c10::Event queued(device.type());
        queued.record(devices.getStream(device));
        queued.block(stream->second);
      }
      tensor.record_stream(stream->second);  // it may have been allocated on a third stream
      const c10::StreamGuard on_side(stream->second);
      buffer.copy_(tensor, /*non_blocking=*/true);
    }
    snapshot.emplace(name, buffer);
    if (tensor.numel() > 0) copied.emplace(memory_of(tensor), buffer);
  }
  for (const auto& [key, stream] : used) {
    const c10::impl::VirtualGuardImpl devices(key.first);
    auto& end = copies_->ends.emplace_back(key.first);
    end.record(stream);
    end.block(devices.getStream(c10::Device(key.first, key.second)));
  }
  return snapshot;
}

void HostSnapshot::wait() {
  for (auto& end : copies_->ends) end.synchronize();
  copies_->ends.clear();
}

}  // namespace ddp
