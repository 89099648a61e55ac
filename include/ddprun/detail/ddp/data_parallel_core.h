// The part of DataParallel that does not depend on the model's type.
#pragma once

#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace torch::nn {
class Module;
}

namespace ddp {

struct DataParallelOptions;
class DeviceThreads;
class Replicas;

/// Devices, copies and threads of one DataParallel wrapper. Used by the wrapper; not meant for programs.
class DataParallelCore {
 public:
  DataParallelCore(const std::shared_ptr<torch::nn::Module>& model, const DataParallelOptions& options);
  ~DataParallelCore();

  /// Whether there is at most one device: the model is then called directly.
  bool passes_through() const { return devices_.size() < 2; }
  const std::vector<c10::Device>& devices() const { return devices_; }
  c10::Device output_device() const { return output_device_; }
  int64_t dim() const { return dim_; }

  /// Throws std::runtime_error when the model is not wholly on the first device.
  void check_devices() const;
  /// The model and its copies, of which the first `count` are up to date.
  const std::vector<std::shared_ptr<torch::nn::Module>>& refreshed(size_t count);
  /// Runs tasks[i] on device i; throws std::runtime_error that names the device, with the cause nested, when one fails.
  void run(const std::vector<std::function<void()>>& tasks);

 private:
  std::vector<c10::Device> devices_;
  c10::Device output_device_;
  int64_t dim_;
  std::unique_ptr<Replicas> replicas_;
  std::unique_ptr<DeviceThreads> threads_;
};

}  // namespace ddp
