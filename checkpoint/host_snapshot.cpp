#include "checkpoint/host_snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <tuple>
#include <utility>
#include <vector>

namespace ddp {
namespace {

bool fits(const at::Tensor& buffer, const at::Tensor& tensor) {
  return buffer.defined() && buffer.sizes() == tensor.sizes() && buffer.scalar_type() == tensor.scalar_type();
}

auto memory_of(const at::Tensor& tensor) {
  return std::tuple(tensor.storage().unsafeGetStorageImpl(), tensor.storage_offset(), tensor.sizes().vec(),
                    tensor.strides().vec());
}

}  // namespace

TensorMap HostSnapshot::take(const std::string& group, const TensorMap& tensors) {
  const at::NoGradGuard no_grad;
  TensorMap snapshot;
  std::map<decltype(memory_of(at::Tensor())), at::Tensor> copied;
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
      streams_.copy(buffer, tensor);
    }
    snapshot.emplace(name, buffer);
    if (tensor.numel() > 0) copied.emplace(memory_of(tensor), buffer);
  }
  for (auto& end : streams_.end_copies()) ends_.push_back(std::move(end));
  return snapshot;
}

void HostSnapshot::wait() {
  for (auto& end : ends_) end.synchronize();
  ends_.clear();
}

}  // namespace ddp
