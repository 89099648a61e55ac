// A Loader whose batches arrive on a device, copied while the batch before is used.
#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include <ddprun/data/batch.h>
#include <ddprun/data/loader.h>

namespace ddp {

namespace detail {

/// Batches from the host to a device, one at a time, beside the computation.
class BatchTransfer {
 public:
  virtual ~BatchTransfer() = default;

  /// Whether there is anything to copy: not on the CPU, where everything passes through untouched.
  virtual bool copies() const = 0;
  /// The batch in page-locked memory, from which the device reads by itself. For any thread.
  virtual Batch pin(const Batch& batch) const = 0;
  /// Begins to copy a pinned batch.
  virtual void start(const Batch& pinned) = 0;
  /// The copy that was begun; the current stream waits for it, the host does not.
  virtual Batch finish() = 0;
};

std::unique_ptr<BatchTransfer> transfer_to(c10::Device device);

// What the worker threads of a DeviceLoader read.
template <typename Dataset>
struct PinnedDataset {
  const Dataset* dataset;
  const BatchTransfer* transfer;
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    return transfer->pin(Loader<Dataset>::read(*dataset, indices, epoch));
  }
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch,
                  std::span<const int64_t> share) const requires ReplacesSamples<Dataset> {
    return transfer->pin(Loader<Dataset>::read(*dataset, indices, epoch, share));
  }
};

}  // namespace detail

/// As Loader, for datasets that give a ddp::Batch, with the tensors on `device`. With a GPU the workers leave batches
/// in page-locked memory, and while the loop's body uses one batch the next is copied on a stream of its own; the
/// current stream waits for it, the host does not. On the CPU it is a Loader and copies nothing.
///
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 128, .workers = 2});
///     for (auto& batch : loader) { auto loss = cross_entropy(model(batch.data), batch.target); … }
///
/// Use it in one thread, under the stream that computes. The dataset and the sampler must outlive it. What is copied
/// ahead does not count as used in a checkpoint of the sampler or of the loader.
template <typename Dataset>
class DeviceLoader {
 public:
  /// Throws what Loader's constructor throws.
  DeviceLoader(const Dataset& dataset, EpochSampler& sampler, c10::Device device, const LoaderOptions& options = {})
      : DeviceLoader(dataset, sampler, detail::transfer_to(device), options) {}
  /// With another way to the device, for tests.
  DeviceLoader(const Dataset& dataset, EpochSampler& sampler, std::unique_ptr<detail::BatchTransfer> transfer,
               const LoaderOptions& options = {})
      : transfer_(std::move(transfer)), pinned_{&dataset, transfer_.get()}, loader_(pinned_, sampler, options) {
    static_assert(std::is_same_v<typename Loader<Dataset>::Batch, Batch>, "the dataset has to give a ddp::Batch");
  }
  DeviceLoader(const Dataset&& dataset, EpochSampler& sampler, c10::Device device,
               const LoaderOptions& options = {}) = delete;
  DeviceLoader(const DeviceLoader&) = delete;
  DeviceLoader& operator=(const DeviceLoader&) = delete;

  class Iterator {
   public:
    explicit Iterator(DeviceLoader* loader) : loader_(loader) { loader_->advance(); }
    Batch& operator*() { return *loader_->current_; }
    Batch* operator->() { return &*loader_->current_; }
    Iterator& operator++() {
      loader_->advance();
      return *this;
    }
    bool operator==(std::default_sentinel_t) const { return !loader_->current_.has_value(); }

   private:
    DeviceLoader* loader_;
  };

  /// Begins a pass over the samples that are left of the sampler's epoch.
  Iterator begin() {
    loader_.start();
    error_ = nullptr;
    is_copying_ = false;
    return Iterator(this);
  }
  std::default_sentinel_t end() const { return std::default_sentinel; }

  /// Number of batches of a pass that begins now.
  int64_t size() const { return loader_.size(); }

  /// As Loader's.
  SamplerState state() const { return loader_.state(); }
  std::string save() const { return loader_.save(); }
  void load(const std::string& state) { loader_.load(state); }
  void save(torch::serialize::OutputArchive& archive) const { loader_.save(archive); }
  void load(torch::serialize::InputArchive& archive) { loader_.load(archive); }

 private:
  using Pinned = detail::PinnedDataset<Dataset>;

  void advance() {
    current_.reset();
    if (!is_copying_ && !error_) fetch();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!is_copying_) return;
    current_ = transfer_->finish();
    loader_.report(used_with_copy_);
    is_copying_ = false;
    if (transfer_->copies()) fetch();
  }

  // The loader's next batch begins its way to the device. What goes wrong belongs to that batch, not to the current
  // one.
  void fetch() {
    try {
      const std::optional<Batch> batch = loader_.fetch();
      if (!batch) return;
      used_with_copy_ = loader_.fetched();
      transfer_->start(*batch);
      is_copying_ = true;
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  std::unique_ptr<detail::BatchTransfer> transfer_;
  Pinned pinned_;
  Loader<Pinned> loader_;
  std::optional<Batch> current_;
  int64_t used_with_copy_ = 0;  // samples of the pass, with those that are being copied
  bool is_copying_ = false;
  std::exception_ptr error_;
};

}  // namespace ddp
