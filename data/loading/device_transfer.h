// Batches from the host to a device, on a stream of its own.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

#include <ddprun/data/device_loader.h>

namespace ddp::detail {

class DeviceTransfer : public BatchTransfer {
 public:
  explicit DeviceTransfer(c10::Device device);

  bool copies() const override { return stream_.has_value(); }
  /// LibTorch keeps page-locked memory, and gives it out again only when the copies from it are done.
  Batch pin(const Batch& batch) const override;
  void start(const Batch& pinned) override;
  Batch finish() override;

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> done_;
  Batch copy_;
};

}  // namespace ddp::detail
