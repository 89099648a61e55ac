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
/// The device tells by events with a clock: two are queued, nobody waits for them, and they are read at the next
/// ranges once they have been reached. Nothing while no timeline is recorded, on the CPU, and while the stream is
/// captured in a CUDA graph.
class DeviceRange {
 public:
  DeviceRange(std::string_view name, c10::Device device) noexcept;
  ~DeviceRange();
  DeviceRange(const DeviceRange&) = delete;
  DeviceRange& operator=(const DeviceRange&) = delete;

 private:
  std::uint64_t id_;
};

}  // namespace ddp::timeline
