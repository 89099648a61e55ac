// Datasets around other datasets: transformed as they are read, or of whatever type.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/loader.h>
#include <ddprun/data/transforms.h>

namespace ddp {

/// Settings of a Transformed, all optional.
struct TransformedOptions {
  transforms::BatchTransform batch{};  ///< for each batch, after its samples: mixup(), cutmix() or your own
  uint64_t seed = 0;                   ///< what the random numbers of the transforms depend on, besides epoch and index
};

/// Gives each sample of a dataset of ddp::Batch through `transform`, and each batch through `options.batch`:
///
///     using namespace ddp::transforms;
///     ddp::Transformed train(images, compose({random_crop({.size = 32, .padding = 4}), random_horizontal_flip()}),
///                            {.batch = mixup({.classes = 10})});
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 128, .workers = 4});
///
/// What is random depends on seed, epoch and the sample's index alone (a batch's on its first sample's), so not on
/// workers, nor on a resume. Refers to the dataset, which must outlive it. Safe from several threads if the dataset and
/// the functions are.
template <typename Dataset>
class Transformed {
 public:
  /// Refers to `dataset`, which gives ddp::Batch and must outlive this object.
  Transformed(const Dataset& dataset, transforms::Transform transform, TransformedOptions options = {})
      : dataset_(&dataset), transform_(std::move(transform)), options_(std::move(options)) {}
  Transformed(const Dataset&& dataset, transforms::Transform transform, TransformedOptions options = {}) = delete;

  /// Number of samples, the dataset's.
  int64_t size() const { return static_cast<int64_t>(dataset_->size()); }

  /// The samples with these indices, transformed. Throws what the dataset and the functions throw.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    return transform(detail::read_batch(*dataset_, indices, epoch, indices), indices, epoch);
  }
  /// The same for a dataset that replaces samples which it cannot read: see ReplacesSamples.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch,
                  std::span<const int64_t> share) const requires ReplacesSamples<Dataset> {
    return transform(detail::read_batch(*dataset_, indices, epoch, share), indices, epoch);
  }

 private:
  Batch transform(Batch batch, std::span<const int64_t> indices, int64_t epoch) const {
    if (indices.empty()) return batch;
    std::vector<at::Tensor> samples;
    for (size_t i = 0; i < indices.size(); ++i) {
      SampleRandom random(options_.seed, epoch, indices[i]);
      samples.push_back(transform_(batch.data[static_cast<int64_t>(i)], random));
    }
    batch.data = at::stack(samples);
    if (!options_.batch) return batch;
    constexpr uint64_t kPurpose = 0x6261746368;  // numbers other than the sample's own
    SampleRandom random(options_.seed ^ kPurpose, epoch, indices.front());
    return options_.batch(batch, random);
  }

  const Dataset* dataset_;
  transforms::Transform transform_;
  TransformedOptions options_;
};

/// Owns a dataset of whatever type that gives ddp::Batch. As safe from several threads as that is. Copies share it. (A
/// dataset that replaces samples takes them from the batch here, not from the rank's share of the epoch.)
///
///     const ddp::AnyDataset train = dir.empty() ? ddp::AnyDataset(ddp::SyntheticImages()) : ddp::ImageFolder(…);
class AnyDataset {
 public:
  /// Takes any dataset whose get_batch() returns a ddp::Batch; copies share it.
  template <typename Dataset>
  requires requires(const Dataset& dataset) {
    { detail::read_batch(dataset, {}, 0) } -> std::convertible_to<Batch>;
  }
  AnyDataset(Dataset dataset) : size_(dataset.size()) {
    auto owned = std::make_shared<const Dataset>(std::move(dataset));
    read_ = [owned](std::span<const int64_t> indices, int64_t epoch) {
      return detail::read_batch(*owned, indices, epoch, indices);
    };
  }

  /// Number of samples, the dataset's.
  int64_t size() const { return size_; }
  /// What the dataset gives for these indices. Throws what it throws.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const { return read_(indices, epoch); }

 private:
  int64_t size_;
  std::function<Batch(std::span<const int64_t>, int64_t)> read_;
};

}  // namespace ddp
