// A dataset's batches, made ahead of time by threads, in the order of a sampler.
#pragma once

#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/data/batch_pipeline.h>
#include <ddprun/samplers/batch_sampler.h>
#include <ddprun/samplers/epoch_sampler.h>

namespace ddp {

/// Settings of a Loader, all optional.
struct LoaderOptions {
  int64_t batch_size = 1;  ///< samples per batch and rank
  bool drop_last = false;  ///< leave out a last batch that is not full
  int workers = 1;         ///< threads that make batches; 0: the caller's, when it asks
  int64_t prefetch = 4;    ///< batches made ahead, at most
};

/// What a dataset threw for a sample.
class LoaderError : public std::runtime_error {
 public:
  /// For Loader, which throws it.
  LoaderError(int64_t index, const std::string& problem)
      : std::runtime_error("sample " + std::to_string(index) + ": " + problem), index_(index) {}

  /// The sample's index in the dataset.
  int64_t index() const noexcept { return index_; }

 private:
  int64_t index_;
};

/// A dataset that replaces samples that it cannot read: `get_batch(indices, epoch, share)` takes the replacements from
/// `share`, the rank's samples of the whole epoch.
template <typename Dataset>
concept ReplacesSamples = requires(const Dataset& dataset, std::span<const int64_t> indices, int64_t epoch) {
  dataset.get_batch(indices, epoch, indices);
};

namespace detail {

// Leaves each batch where the dataset made it.
template <typename Batch>
class HostPlacement {
 public:
  bool is_asynchronous() const { return false; }
  Batch prepare(Batch batch) const { return batch; }
  void start(Batch batch) { batch_.emplace(std::move(batch)); }
  Batch finish() { return *std::exchange(batch_, std::nullopt); }

 private:
  std::optional<Batch> batch_;
};

template <typename Dataset>
auto read_batch(const Dataset& dataset, std::span<const int64_t> indices, [[maybe_unused]] int64_t epoch,
                [[maybe_unused]] std::span<const int64_t> share = {}) {
  if constexpr (ReplacesSamples<Dataset>) {
    return dataset.get_batch(indices, epoch, share);
  } else if constexpr (requires { dataset.get_batch(indices, epoch); }) {
    return dataset.get_batch(indices, epoch);
  } else {
    return dataset.get_batch(indices);
  }
}

template <typename Dataset>
using BatchOf = decltype(read_batch(std::declval<const Dataset&>(), {}, 0));

// As read_batch(); the error of a batch names the first sample that cannot be read alone either.
template <typename Dataset>
BatchOf<Dataset> read_naming_samples(const Dataset& dataset, std::span<const int64_t> indices, int64_t epoch,
                                     std::span<const int64_t> share) {
  try {
    return read_batch(dataset, indices, epoch, share);
  } catch (const std::exception& error) {
    for (const int64_t index : indices) {
      try {
        static_cast<void>(read_batch(dataset, std::span(&index, 1), epoch, share));
      } catch (const std::exception& of_sample) {
        throw LoaderError(index, of_sample.what());
      }
    }
    throw;
  }
}

}  // namespace detail

/// Range-for over the batches of the sampler's current epoch; each begin() is a new pass, which may end early. Batches
/// come in the sampler's order whatever the number of workers, the threads stay from epoch to epoch, and at most
/// `prefetch` batches are in memory besides the caller's. Not safe for concurrent calls.
///
///     ddp::Loader loader(train, sampler, {.batch_size = 128, .workers = 2});
///     for (int64_t epoch = 0; epoch < 10; ++epoch) {
///       sampler.set_epoch(epoch);
///       for (auto& batch : loader) { … batch.data … batch.target … }
///     }
///
/// The sampler counts a batch as used when the loop's body gets it, not when a thread makes it ahead: a checkpoint of
/// the sampler, or of the loader, which is the same, continues with the batch after the current one.
///
///     const ddp::TrainingState state{.model = net, .sampler = loader};
///
/// Dataset has `get_batch(std::span<const int64_t> indices)`, or `get_batch(indices, epoch)` when what it gives differs
/// from epoch to epoch, or what ReplacesSamples says; it is called by several threads at once. The loop gets an
/// exception of the dataset in place of the batch, as a LoaderError that names the sample. The dataset must outlive the
/// loader. Placement says where batches go after they are made; DeviceLoader has one that copies them to a device.
template <typename Dataset, typename Placement = detail::HostPlacement<detail::BatchOf<Dataset>>>
class Loader {
 public:
  /// What the dataset's get_batch() returns.
  using Batch = detail::BatchOf<Dataset>;

  /// Throws std::invalid_argument for a batch size or prefetch below 1 and a negative number of workers, and
  /// std::system_error for more workers than the system has threads to give.
  Loader(const Dataset& dataset, EpochSampler& sampler, const LoaderOptions& options = {})
      : Loader(dataset, sampler, std::make_unique<Placement>(), options) {}
  Loader(const Dataset&& dataset, EpochSampler& sampler, const LoaderOptions& options = {}) = delete;
  /// The same with a placement, whose prepare() is called by the threads that make batches.
  Loader(const Dataset& dataset, EpochSampler& sampler, std::unique_ptr<Placement> placement,
         const LoaderOptions& options = {})
      : dataset_(&dataset),
        sampler_(&sampler),
        options_(options),
        placement_(std::move(placement)),
        pipeline_(std::make_unique<BatchPipeline<Batch>>(options.workers, options.prefetch)) {
    static_cast<void>(BatchSampler({}, options.batch_size));  // checks it
  }

  /// Walks over the batches of one pass.
  class Iterator {
   public:
    /// For begin(), which makes it.
    explicit Iterator(Loader* loader) : loader_(loader) { ++*this; }
    /// The current batch.
    Batch& operator*() { return *batch_; }
    /// The current batch.
    Batch* operator->() { return &*batch_; }
    /// Waits for the next batch. Throws what the dataset threw for it, as LoaderError.
    Iterator& operator++() {
      batch_.reset();  // its memory is free before the next one is taken
      batch_ = loader_->next();
      return *this;
    }
    /// Whether the pass has ended.
    bool operator==(std::default_sentinel_t) const { return !batch_.has_value(); }

   private:
    Loader* loader_;
    std::optional<Batch> batch_;
  };

  /// Begins a pass over the samples that are left of the sampler's epoch.
  Iterator begin() {
    start();
    return Iterator(this);
  }
  /// The end of the loop.
  std::default_sentinel_t end() const { return std::default_sentinel; }

  /// Number of batches of a pass that begins now.
  int64_t size() const {
    const int64_t samples = sampler_->size();
    return samples / options_.batch_size + (!options_.drop_last && samples % options_.batch_size != 0 ? 1 : 0);
  }

  /// Where the job stands when the current batch, the one that the loop's body sees, has been used: the sampler's
  /// state().
  SamplerState state() const { return sampler_->state(); }

  /// The sampler's, so that `.sampler = loader` and `.sampler = sampler` are the same. A pass that runs while a state
  /// is loaded continues unchanged; the next one begins where the state says.
  std::string save() const { return sampler_->save(); }
  /// Gives the sampler a state that save() has returned.
  void load(const std::string& state) { sampler_->load(state); }
  /// Writes the sampler's state into an archive of LibTorch's.
  void save(torch::serialize::OutputArchive& archive) const { sampler_->save(archive); }
  /// Gives the sampler the state of such an archive.
  void load(torch::serialize::InputArchive& archive) { sampler_->load(archive); }

 private:
  void start() {
    pass_.emplace(sampler_->begin_pass());
    batches_ = std::make_shared<const BatchSampler>(pass_->indices(), options_.batch_size, options_.drop_last);
    samples_ = 0;
    number_ = 0;
    is_placing_ = false;
    error_ = nullptr;
    std::vector<int64_t> share;
    if constexpr (ReplacesSamples<Dataset>) share = sampler_->share_of_epoch(pass_->epoch());
    pipeline_->start(batches_->size(), [dataset = dataset_, placement = placement_.get(), batches = batches_,
                                        epoch = pass_->epoch(), share = std::move(share)](int64_t number) {
      return placement->prepare(detail::read_naming_samples(*dataset, (*batches)[number], epoch, share));
    });
  }

  std::optional<Batch> next() {
    if (!is_placing_ && !error_) start_placing();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!is_placing_) return std::nullopt;
    std::optional<Batch> batch(placement_->finish());
    is_placing_ = false;
    pass_->used(samples_);
    if (placement_->is_asynchronous()) start_placing();
    return batch;
  }

  // An error here belongs to the batch that is placed, not to the one that the loop's body has.
  void start_placing() {
    try {
      std::optional<Batch> batch = pipeline_->next();
      if (!batch) return;
      samples_ += static_cast<int64_t>((*batches_)[number_++].size());
      placement_->start(*std::move(batch));
      is_placing_ = true;
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  const Dataset* dataset_;
  EpochSampler* sampler_;
  LoaderOptions options_;
  std::optional<SamplerPass> pass_;
  std::shared_ptr<const BatchSampler> batches_;
  int64_t samples_ = 0;  // of the pass, up to the batch that was placed last
  int64_t number_ = 0;   // of the next batch
  bool is_placing_ = false;
  std::exception_ptr error_;
  std::unique_ptr<Placement> placement_;
  std::unique_ptr<BatchPipeline<Batch>> pipeline_;  // last: its threads use the others
};

}  // namespace ddp
