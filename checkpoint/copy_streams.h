// Streams on which tensors are copied to host memory beside the work of their devices.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <map>
#include <utility>
#include <vector>

namespace ddp {

class CopyStreams {
 public:
  /// Queues a copy of `source`, which is on another device than the CPU, into the host tensor `target`, and returns its
  /// stream. It comes after the work that was queued on the device's current stream at the first call since
  /// end_copies(). Throws while a graph is captured.
  c10::Stream copy(const at::Tensor& target, const at::Tensor& source);

  /// Makes what is queued later on the current streams wait for the copies so far. Returns events that mark their ends.
  std::vector<c10::Event> end_copies();

 private:
  c10::Stream stream_of(c10::Device device);

  using Key = std::pair<c10::DeviceType, c10::DeviceIndex>;

  std::map<Key, c10::Stream> streams_{};
  std::map<Key, c10::Stream> used_{};
};

}  // namespace ddp
