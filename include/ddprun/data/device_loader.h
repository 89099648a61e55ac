// A Loader whose batches arrive on a device, copied while the previous batch is used.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <memory>
#include <optional>
#include <type_traits>

#include <ddprun/data/batch.h>
#include <ddprun/data/loader.h>

namespace ddp {

namespace detail {

// Copies batches to a device on a stream of its own, one at a time. On the CPU it copies nothing.
class DevicePlacement {
 public:
  explicit DevicePlacement(c10::Device device);

  bool is_asynchronous() const { return stream_.has_value(); }
  /// The batch in page-locked memory, which the device can read while the host continues. Any thread may call it.
  /// LibTorch caches page-locked memory, and reuses it only after the copies from it are done.
  Batch prepare(Batch batch) const;
  void start(Batch prepared);
  /// Returns the copy that start() began. The current stream waits for it; the host does not.
  Batch finish();

 private:
  c10::Device device_;
  std::optional<c10::Stream> stream_;
  std::optional<c10::Event> done_;
  Batch copy_;
};

}  // namespace detail

/// As Loader, for datasets that give a ddp::Batch, with the tensors on `device`. With a GPU the workers put batches
/// into page-locked memory. While the loop's body uses one batch, the next one is copied on a separate stream; the
/// current stream waits for that copy, the host does not. On the CPU it is a Loader and copies nothing.
///
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 128, .workers = 2});
///     for (auto& batch : loader) { auto loss = cross_entropy(model(batch.data), batch.target); … }
///
/// Use it in one thread, under the stream that computes. The dataset and the sampler must outlive it. In a checkpoint
/// of the sampler or the loader, a batch that was only copied in advance does not count as used.
template <typename Dataset>
class DeviceLoader : public Loader<Dataset, detail::DevicePlacement> {
 public:
  /// Throws what Loader's constructor throws.
  DeviceLoader(const Dataset& dataset, detail::SamplerOf<Dataset>& sampler, c10::Device device,
               const LoaderOptions& options = {})
      : Loader<Dataset, detail::DevicePlacement>(dataset, sampler, std::make_unique<detail::DevicePlacement>(device),
                                                 options) {
    static_assert(std::is_same_v<detail::LoadedBatch<Dataset>, Batch>, "the dataset has to give a ddp::Batch");
  }
  DeviceLoader(const Dataset&& dataset, detail::SamplerOf<Dataset>& sampler, c10::Device device,
               const LoaderOptions& options = {}) = delete;
};

}  // namespace ddp
