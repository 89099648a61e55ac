// Ranges on a device in the timeline (ddprun/base/timeline.h): what a GPU does and when, beside what the host does.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>

namespace ddp::timeline {

/// What the calling thread queues on the current stream of `device` while this lives is the range `name`, of which 160
/// bytes are kept: a slice in the lane of that stream, from when the device comes there until it has done all of it.
/// The stream is asked when the object is made. DistributedDataParallel makes such ranges of forward, backward and each
/// bucket by itself.
///
/// Times come from events of the device: two are queued, nothing waits for them, and they are read at later ranges when
/// the device has reached them. Nothing while no timeline is recorded, on the CPU, and while the stream is captured in
/// a CUDA graph.
class DeviceRange {
 public:
  /// Begins the range on the current stream of `device`.
  DeviceRange(std::string_view name, c10::Device device) noexcept;
  ~DeviceRange();
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  std::uint64_t id_;
};

}  // namespace ddp::timeline
