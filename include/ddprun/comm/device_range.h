// Ranges on a device in the timeline (ddprun/base/timeline.h): they show when a GPU does what, beside the ranges of the
// host.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string_view>

namespace ddp::timeline {

/// A named range in the lane of a device's stream. It covers the work that the calling thread queues on the current
/// stream of `device` while this object exists: it begins when the device reaches the first of that work and ends when
/// the device has completed all of it. The constructor determines the stream. The first 160 bytes of the name are kept.
/// DistributedDataParallel records such ranges for forward, backward and each bucket.
///
/// The times are those of two device events that are queued. No thread waits for them; a later range reads them when
/// the device has reached them. The object does nothing if no timeline is recorded, on the CPU, and while the stream is
/// captured in a CUDA graph.
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
