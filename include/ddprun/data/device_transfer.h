// Internal: batches from the host to a device beside the computation.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <optional>

#include <ddprun/data/batch.h>

namespace ddp::detail {

/// One copy at a time, on a stream of its own. On the CPU everything passes through untouched.
class DeviceTransfer {
 public:
  explicit DeviceTransfer(c10::Device device);

  bool copies() const { return stream_.has_value(); }

  /// The batch in page-locked memory, from which the device reads by itself. LibTorch keeps such memory, and gives it
  /// out again only when the copies from it are done. For any thread.
  Batch pin(const Batch& batch) const;

  /// Begins to copy a pinned batch.
  void start(const Batch& pinned);
  /// The copy that was begun; the current stream waits for it, the host does not.
  Batch finish();

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> done_;
  Batch copy_;
};

}  // namespace ddp::detail
