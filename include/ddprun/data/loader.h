// A dataset's batches, made ahead of time by threads, in the order of a sampler.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include <ddprun/detail/data/batch_pipeline.h>
#include <ddprun/detail/data/pass_stop.h>
#include <ddprun/detail/data/stream_batches.h>
#include <ddprun/samplers/batch_sampler.h>
#include <ddprun/samplers/epoch_sampler.h>
#include <ddprun/samplers/stream_sampler.h>

namespace ddp {

/// Settings of a Loader, all optional.
struct LoaderOptions {
  int64_t batch_size = 1;  ///< samples per batch and rank
  bool drop_last = false;  ///< leave out a last batch that is not full
  int workers = 1;         ///< threads that make batches; 0: the calling thread makes each batch when it needs it
  int64_t prefetch = 4;    ///< batches made ahead, at most
};

/// An exception of the dataset for one sample.
class LoaderError : public std::runtime_error {
 public:
  /// Called by Loader; programs do not call it.
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

/// A stop token for the reading functions of an IterableDataset. A stop is requested when the loop has left the pass of
/// the loader for which the calling thread reads. Outside of a loader a stop is never requested.
inline std::stop_token stop_of_pass() {
  return detail::pass_stop();
}

/// A dataset without an index, which is read from beginning to end. It consists of `parts()` parts, such as files;
/// `open(part)` returns an object that reads one part. That object's `next()` returns a std::optional of the sample
/// type, which is empty at the end. One thread at a time reads samples, so next() should be cheap. Expensive work, such
/// as decoding, should be done in the dataset's `make_batch(std::span<Sample> samples, int64_t epoch)` or
/// `make_batch(samples)`, which several threads call at the same time. Without make_batch() the samples are stacked, as
/// those of ddp::Samples are.
///
/// If next() or skip() may block for long, for example on a socket, they must end the wait when stop_of_pass() requests
/// a stop, and throw any exception. The loop has then been left, and the loader waits for these calls.
///
/// Two further functions make a resume in mid-epoch faster, because samples are skipped then: `skip(int64_t count)` of
/// the object that open() returns, which returns how many of `count` samples there were, and the dataset's
/// `part_size(part)`.
template <typename Dataset>
concept IterableDataset = requires(const Dataset& dataset, int64_t part) {
  { dataset.parts() } -> std::convertible_to<int64_t>;
  dataset.open(part);
  requires requires(decltype(dataset.open(part))& walk) {
    static_cast<bool>(walk.next()), *walk.next();
  };
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

// As read_batch(). If a batch fails, the samples are read one by one, and the error names the first one that fails.
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

/// One pass over a dataset with an index.
template <typename Dataset>
class IndexedBatches {
 public:
  using Batch = BatchOf<Dataset>;

  IndexedBatches(const Dataset& dataset, EpochSampler& sampler, int64_t batch_size, bool drop_last)
      : dataset_(dataset), pass_(sampler.begin_pass()), batches_(pass_.indices(), batch_size, drop_last) {
    if constexpr (ReplacesSamples<Dataset>) share_ = sampler.share_of_epoch(pass_.epoch());
  }

  int64_t count() const { return batches_.size(); }
  MadeBatch<Batch> make(int64_t number) const {
    const std::span<const int64_t> indices = batches_[number];
    return {read_naming_samples(dataset_, indices, pass_.epoch(), share_), static_cast<int64_t>(indices.size())};
  }
  void used(int64_t samples) const { pass_.used(samples); }
  void end() const {}
  void interrupt() const {}

 private:
  const Dataset& dataset_;
  SamplerPass pass_;
  BatchSampler batches_;
  std::vector<int64_t> share_;
};

/// The source of a loader's batches.
template <typename Dataset>
class BatchSource {
 public:
  using Sampler = EpochSampler;
  using Batches = IndexedBatches<Dataset>;

  BatchSource(const Dataset& dataset, EpochSampler& sampler) : dataset_(dataset), sampler_(sampler) {}
  std::shared_ptr<Batches> begin(int64_t batch_size, bool drop_last) const {
    return std::make_shared<Batches>(dataset_, sampler_, batch_size, drop_last);
  }
  int64_t samples() const { return sampler_.size(); }

 private:
  const Dataset& dataset_;
  EpochSampler& sampler_;
};

template <IterableDataset Dataset>
class BatchSource<Dataset> {
 public:
  using Sampler = StreamSampler;
  using Batches = StreamBatches<Dataset>;

  BatchSource(const Dataset& dataset, StreamSampler& sampler)
      : dataset_(dataset), sampler_(sampler), sizes_(std::make_shared<PartSizes<Dataset>>(dataset)) {}
  std::shared_ptr<Batches> begin(int64_t batch_size, bool drop_last) const {
    return std::make_shared<Batches>(dataset_, sizes_, sampler_, batch_size, drop_last);
  }
  int64_t samples() const {
    return sampler_.size(static_cast<int64_t>(dataset_.parts()), [this](int64_t part) { return (*sizes_)(part); });
  }

 private:
  const Dataset& dataset_;
  StreamSampler& sampler_;
  std::shared_ptr<PartSizes<Dataset>> sizes_;
};

template <typename Dataset>
using SamplerOf = typename BatchSource<Dataset>::Sampler;

template <typename Dataset>
using LoadedBatch = typename BatchSource<Dataset>::Batches::Batch;

}  // namespace detail

/// Range-for over the batches of the sampler's current epoch; each begin() is a new pass, which may end early. Batches
/// arrive in the sampler's order, whatever the number of workers. The threads are kept from epoch to epoch. At most
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
/// Dataset has `get_batch(std::span<const int64_t> indices)`, or `get_batch(indices, epoch)` if samples differ from
/// epoch to epoch, or the function of ReplacesSamples; several threads call it at the same time. If the dataset throws,
/// the loop gets a LoaderError that names the sample instead of the batch. A dataset may also be an IterableDataset:
/// then the sampler is a StreamSampler, and the loop gets the dataset's exception itself. The dataset must outlive the
/// loader. Placement determines where batches are put after they are made; that of DeviceLoader copies them to a
/// device.
template <typename Dataset, typename Placement = detail::HostPlacement<detail::LoadedBatch<Dataset>>>
class Loader {
 public:
  /// What the dataset's get_batch() or make_batch() returns.
  using Batch = detail::LoadedBatch<Dataset>;
  /// EpochSampler, or StreamSampler for an IterableDataset.
  using Sampler = detail::SamplerOf<Dataset>;

  /// Throws std::invalid_argument for a batch size or prefetch below 1 and a negative number of workers, and
  /// std::system_error for more workers than the system has threads to give.
  Loader(const Dataset& dataset, detail::SamplerOf<Dataset>& sampler, const LoaderOptions& options = {})
      : Loader(dataset, sampler, std::make_unique<Placement>(), options) {}
  Loader(const Dataset&& dataset, detail::SamplerOf<Dataset>& sampler, const LoaderOptions& options = {}) = delete;
  /// The same with a placement, whose prepare() is called by the threads that make batches.
  Loader(const Dataset& dataset, detail::SamplerOf<Dataset>& sampler, std::unique_ptr<Placement> placement,
         const LoaderOptions& options = {})
      : source_(dataset, sampler),
        sampler_(&sampler),
        options_(options),
        placement_(std::move(placement)),
        pipeline_(std::make_unique<BatchPipeline<Made>>(options.workers, options.prefetch)) {
    static_cast<void>(BatchSampler({}, options.batch_size));  // checks it
  }

  /// Walks over the batches of one pass.
  class Iterator {
   public:
    /// Called by begin(); programs do not call it.
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

  /// Number of batches of a pass that begins now. For an IterableDataset it asks for the sizes of the parts, or counts
  /// their samples once, which may read all of the data.
  int64_t size() const {
    const int64_t samples = source_.samples();
    return samples / options_.batch_size + (!options_.drop_last && samples % options_.batch_size != 0 ? 1 : 0);
  }

  /// The position of the job after the current batch, the one that the loop's body has: the sampler's state().
  auto state() const { return sampler_->state(); }

  /// Returns what the sampler's save() returns, so `.sampler = loader` and `.sampler = sampler` are the same. If a
  /// state is loaded during a pass, that pass continues unchanged; the next one begins at the position of the loaded
  /// state.
  std::string save() const { return sampler_->save(); }
  /// Gives the sampler a state that save() has returned.
  void load(const std::string& state) { sampler_->load(state); }
  /// Writes the sampler's state into an archive of LibTorch's.
  void save(torch::serialize::OutputArchive& archive) const requires(!IterableDataset<Dataset>) {
    sampler_->save(archive);
  }
  /// Gives the sampler the state of such an archive.
  void load(torch::serialize::InputArchive& archive) requires(!IterableDataset<Dataset>) { sampler_->load(archive); }

 private:
  using Made = detail::MadeBatch<Batch>;

  void start() {
    batches_ = source_.begin(options_.batch_size, options_.drop_last);
    samples_ = 0;
    is_placing_ = false;
    error_ = nullptr;
    const auto make = [placement = placement_.get(), batches = batches_](int64_t number) {
      Made made = batches->make(number);
      if (made.batch) made.batch = placement->prepare(*std::move(made.batch));
      return made;
    };
    pipeline_->start(batches_->count(), make, [batches = batches_] { batches->interrupt(); });
  }

  std::optional<Batch> next() {
    if (!is_placing_ && !error_) start_placing();
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
    if (!is_placing_) {
      batches_->end();
      return std::nullopt;
    }
    std::optional<Batch> batch(placement_->finish());
    is_placing_ = false;
    batches_->used(samples_);
    if (placement_->is_asynchronous()) start_placing();
    return batch;
  }

  // An error here concerns the batch that is being placed, not the one that the loop's body has.
  void start_placing() {
    try {
      std::optional<Made> made = pipeline_->next();
      if (!made) return;
      if (!made->batch) return pipeline_->stop();  // the end of a stream
      samples_ += made->samples;
      placement_->start(*std::move(made->batch));
      is_placing_ = true;
    } catch (...) {
      error_ = std::current_exception();
    }
  }

  detail::BatchSource<Dataset> source_;
  Sampler* sampler_;
  LoaderOptions options_;
  std::shared_ptr<typename detail::BatchSource<Dataset>::Batches> batches_;  // of the pass
  int64_t samples_ = 0;  // of the pass, up to the batch that was placed last
  bool is_placing_ = false;
  std::exception_ptr error_;
  std::unique_ptr<Placement> placement_;
  std::unique_ptr<BatchPipeline<Made>> pipeline_;  // last: its threads use the others
};

}  // namespace ddp
