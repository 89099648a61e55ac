// One thread per device, kept between calls.
#pragma once

#include <c10/core/Device.h>

#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace ddp {

/// Runs a list of tasks at once: the first in the calling thread, the others each in a thread of their own whose
/// current device is theirs from its start.
class DeviceThreads {
 public:
  explicit DeviceThreads(const std::vector<c10::Device>& devices);
  ~DeviceThreads();
  DeviceThreads(const DeviceThreads&) = delete;
  DeviceThreads& operator=(const DeviceThreads&) = delete;

  /// Runs tasks[i] on device i, with the caller's grad mode, autocast state and current streams of all devices, and
  /// waits for all of them. There must not be more tasks than devices. Element i of the result is the exception of
  /// tasks[i], or null.
  std::vector<std::exception_ptr> run(const std::vector<std::function<void()>>& tasks);

 private:
  class Worker;
  const std::vector<c10::Device> devices_;
  std::vector<std::unique_ptr<Worker>> workers_;  // of the devices after the first
};

}  // namespace ddp
