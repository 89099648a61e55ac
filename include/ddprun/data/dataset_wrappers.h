// Datasets that wrap other datasets: a part of one, several as one, one whose samples are transformed when they are
// read, one of any type.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/stack.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/loader.h>
#include <ddprun/data/transforms.h>
#include <ddprun/detail/data/collate.h>
#include <ddprun/samplers/shard.h>

namespace ddp {

/// Settings of a Transformed, all optional.
struct TransformedOptions {
  transforms::BatchTransform batch{};  ///< applied to each batch after its samples: mixup(), cutmix() or a custom
                                       ///< function
  uint64_t seed = 0;                   ///< the random numbers of the transforms depend on it, on the epoch and on the
                                       ///< index
};

/// Applies `transform` to each sample of a dataset of ddp::Batch, and `options.batch` to each batch:
///
///     using namespace ddp::transforms;
///     ddp::Transformed train(images, compose({random_crop({.size = 32, .padding = 4}), random_horizontal_flip()}),
///                            {.batch = mixup({.classes = 10})});
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 128, .workers = 4});
///
/// Random numbers depend only on the seed, the epoch and the sample's index (for a batch: the index of its first
/// sample). They do not depend on the number of workers, and a resume does not change them. Refers to the dataset,
/// which must outlive it. Safe from several threads if the dataset and the functions are.
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

/// Owns a dataset of any type that returns ddp::Batch. Several threads may use it if the dataset allows it. Copies
/// share the dataset. (A dataset that replaces unreadable samples takes the replacements from the batch, not from the
/// rank's share of the epoch.)
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

namespace detail {

// A dataset that returns the same samples in each epoch.
template <typename Dataset>
concept ReadsWithoutEpoch = requires(const Dataset& dataset, std::span<const int64_t> indices) {
  dataset.get_batch(indices);
};

// As Python's lists: a negative index counts from the end. Throws std::out_of_range, naming `what`.
int64_t checked_index(int64_t index, int64_t size, const char* what);

// The dataset that has this sample, where the datasets' sizes, added up, are `ends`.
size_t dataset_of(int64_t index, const std::vector<int64_t>& ends);

// Selects the indices that belong to dataset `number`, and returns them as indices of that dataset.
std::vector<int64_t> within_dataset(std::span<const int64_t> indices, size_t number, const std::vector<int64_t>& ends);

// Throws std::invalid_argument unless all sizes are equal and there is one.
int64_t common_size(const std::vector<int64_t>& sizes);

}  // namespace detail

/// Some samples of a dataset, in this order: sample i is the dataset's sample indices[i]. As torch.utils.data.Subset. A
/// batch is the one that the dataset returns, without a copy. Random numbers depend on the index in the dataset, not on
/// the index in the subset. Refers to the dataset, which must outlive it. Safe from several threads if the dataset is.
/// Copies share the indices.
template <typename Dataset>
class Subset {
 public:
  /// Indices may repeat. They are not checked here: if the dataset does not have an index, get_batch() throws what the
  /// dataset throws.
  Subset(const Dataset& dataset, std::vector<int64_t> indices)
      : dataset_(&dataset), indices_(std::make_shared<const std::vector<int64_t>>(std::move(indices))) {}
  Subset(const Dataset&& dataset, std::vector<int64_t> indices) = delete;

  /// Number of samples.
  int64_t size() const { return std::ssize(*indices_); }
  /// Their indices in the dataset.
  const std::vector<int64_t>& indices() const { return *indices_; }

  /// These samples; -1 is the last one. Throws std::out_of_range, and what the dataset throws.
  auto get_batch(std::span<const int64_t> indices) const requires detail::ReadsWithoutEpoch<Dataset> {
    return dataset_->get_batch(std::span<const int64_t>(in_dataset(indices)));
  }
  /// The same in an epoch, for a dataset whose samples differ from epoch to epoch.
  auto get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    const std::vector<int64_t> chosen = in_dataset(indices);
    return detail::read_batch(*dataset_, chosen, epoch, chosen);
  }
  /// The same for a dataset that replaces samples which it cannot read: see ReplacesSamples.
  auto get_batch(std::span<const int64_t> indices, int64_t epoch,
                 std::span<const int64_t> share) const requires ReplacesSamples<Dataset> {
    return detail::read_batch(*dataset_, in_dataset(indices), epoch, in_dataset(share));
  }

 private:
  std::vector<int64_t> in_dataset(std::span<const int64_t> indices) const {
    std::vector<int64_t> chosen;
    chosen.reserve(indices.size());
    for (const int64_t index : indices) {
      chosen.push_back((*indices_)[static_cast<size_t>(detail::checked_index(index, size(), "Subset"))]);
    }
    return chosen;
  }

  const Dataset* dataset_;
  std::shared_ptr<const std::vector<int64_t>> indices_;
};

/// Divides a dataset at random into parts of these lengths, or of these fractions of it, which add up to 1: as
/// torch.utils.data.random_split with `generator=torch.Generator().manual_seed(seed)`, the same samples in the same
/// order. Whole numbers are lengths. The dataset must outlive the parts. Throws std::invalid_argument as
/// random_split_indices() and split_lengths().
///
///     const auto parts = ddp::random_split(images, {0.8, 0.2}, /*seed=*/0);
///     ddp::DistributedSampler sampler(parts[0].size(), group);
template <typename Dataset, typename Length>
requires std::is_arithmetic_v<Length> std::vector<Subset<Dataset>> random_split(const Dataset& dataset,
                                                                                const std::vector<Length>& lengths,
                                                                                uint64_t seed) {
  const auto size = static_cast<int64_t>(dataset.size());
  std::vector<int64_t> counts;
  if constexpr (std::is_floating_point_v<Length>) {
    counts = split_lengths(size, std::vector<double>(lengths.begin(), lengths.end()));
  } else {
    counts.assign(lengths.begin(), lengths.end());
  }
  std::vector<Subset<Dataset>> parts;
  for (auto& indices : random_split_indices(size, counts, seed)) parts.emplace_back(dataset, std::move(indices));
  return parts;
}
/// The same for a list in braces.
template <typename Dataset, typename Length>
std::vector<Subset<Dataset>> random_split(const Dataset& dataset, std::initializer_list<Length> lengths,
                                          uint64_t seed) {
  return random_split(dataset, std::vector<Length>(lengths), seed);
}
template <typename Dataset, typename Lengths>
void random_split(const Dataset&& dataset, const Lengths& lengths, uint64_t seed) = delete;
template <typename Dataset, typename Length>
void random_split(const Dataset&& dataset, std::initializer_list<Length> lengths, uint64_t seed) = delete;

/// Several datasets, one after the other, as torch.utils.data.ConcatDataset: the datasets may have different types if
/// their batches have the same type. If all samples of a batch are in one dataset, that dataset's batch is returned;
/// otherwise a new batch is made, and each sample is copied once. Refers to the datasets, which must outlive it. Safe
/// from several threads if they are.
///
///     ddp::ConcatDataset both(photos, drawings);
template <typename First, typename... Others>
class ConcatDataset {
 public:
  /// What the datasets' get_batch() returns.
  using Batch = detail::BatchOf<First>;
  static_assert((std::is_same_v<Batch, detail::BatchOf<Others>> && ...), "the datasets have to give one type of batch");

  /// Refers to the datasets, which are not temporary ones.
  template <typename... Given>
  requires((std::is_lvalue_reference_v<Given> && ...) &&
           std::is_same_v<std::tuple<std::remove_cvref_t<Given>...>,
                          std::tuple<First, Others...>>) explicit ConcatDataset(Given&&... datasets) {
    (add(datasets), ...);
  }
  /// A vector of datasets of one type, such as the parts of a random_split(). Throws std::invalid_argument for an empty
  /// one.
  explicit ConcatDataset(const std::vector<First>& datasets) requires(sizeof...(Others) == 0) {
    if (datasets.empty()) throw std::invalid_argument("ConcatDataset: expected at least one dataset, got none");
    for (const First& dataset : datasets) add(dataset);
  }
  explicit ConcatDataset(const std::vector<First>&& datasets) = delete;

  /// Number of samples of all datasets.
  int64_t size() const { return ends_.back(); }
  /// Where each dataset ends: the sizes, added up.
  const std::vector<int64_t>& cumulative_sizes() const { return ends_; }

  /// These samples; -1 is the last one. Throws std::out_of_range, what the datasets throw, and std::invalid_argument
  /// where samples of one batch differ in shape or dtype.
  Batch get_batch(std::span<const int64_t> indices) const
      requires(detail::ReadsWithoutEpoch<First> && (detail::ReadsWithoutEpoch<Others> && ...)) {
    return read(indices, 0, indices);
  }
  /// The same in an epoch, for datasets whose samples differ from epoch to epoch.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const { return read(indices, epoch, indices); }
  /// The same where a dataset replaces samples that it cannot read, each with its own ones: see ReplacesSamples.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> share) const
      requires(ReplacesSamples<First> || (ReplacesSamples<Others> || ...)) {
    return read(indices, epoch, share);
  }

 private:
  // Takes its own indices, and the others' share of the epoch.
  using Read = std::function<Batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> share,
                                   size_t number, const std::vector<int64_t>& ends)>;

  template <typename Dataset>
  void add(const Dataset& dataset) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + static_cast<int64_t>(dataset.size()));
    read_.push_back([&dataset](std::span<const int64_t> indices, int64_t epoch,
                               [[maybe_unused]] std::span<const int64_t> share, [[maybe_unused]] size_t number,
                               [[maybe_unused]] const std::vector<int64_t>& ends) -> Batch {
      if constexpr (ReplacesSamples<Dataset>) {
        return dataset.get_batch(indices, epoch, detail::within_dataset(share, number, ends));
      } else {
        return detail::read_batch(dataset, indices, epoch);
      }
    });
  }

  Batch read(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> share) const {
    std::vector<std::vector<int64_t>> chosen(read_.size()), rows(read_.size());
    size_t first = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      const int64_t index = detail::checked_index(indices[i], size(), "ConcatDataset");
      const size_t number = detail::dataset_of(index, ends_);
      if (i == 0) first = number;
      chosen[number].push_back(index - (number == 0 ? 0 : ends_[number - 1]));
      rows[number].push_back(static_cast<int64_t>(i));
    }
    if (chosen[first].size() == indices.size()) return read_[first](chosen[first], epoch, share, first, ends_);
    std::vector<Batch> parts;
    for (size_t number = 0; number < read_.size(); ++number) {
      if (rows[number].empty()) continue;
      parts.push_back(read_[number](chosen[number], epoch, share, number, ends_));
    }
    std::erase_if(rows, [](const auto& places) { return places.empty(); });
    return detail::merged(parts, rows, std::ssize(indices));
  }

  std::vector<Read> read_;
  std::vector<int64_t> ends_;
};
template <typename Dataset>
ConcatDataset(const std::vector<Dataset>&) -> ConcatDataset<Dataset>;
template <typename First, typename... Others>
ConcatDataset(const First&, const Others&...) -> ConcatDataset<First, Others...>;

/// Several datasets side by side, as torch.utils.data.StackDataset: a batch is a tuple of their batches for the same
/// indices, as the datasets return them. Refers to the datasets, which must outlive it. Safe from several threads if
/// they are.
///
///     ddp::StackDataset pairs(photos, depths);
///     for (auto& [photo, depth] : ddp::Loader(pairs, sampler)) …
template <typename... Datasets>
class StackDataset {
 public:
  /// What the datasets' get_batch() return.
  using Batch = std::tuple<detail::BatchOf<Datasets>...>;

  /// Refers to the datasets, which are not temporary ones. Throws std::invalid_argument for datasets of different
  /// sizes.
  template <typename... Given>
  requires(sizeof...(Given) == sizeof...(Datasets) && sizeof...(Given) > 0 &&
           (std::is_lvalue_reference_v<Given> && ...)) explicit StackDataset(Given&&... datasets)
      : datasets_(&datasets...), size_(detail::common_size({static_cast<int64_t>(datasets.size())...})) {}

  /// Number of samples, which is each dataset's.
  int64_t size() const { return size_; }

  /// The datasets' batches for these indices. Throws what the datasets throw.
  Batch get_batch(std::span<const int64_t> indices) const requires(detail::ReadsWithoutEpoch<Datasets>&&...) {
    return std::apply([&](const auto*... dataset) { return Batch(dataset->get_batch(indices)...); }, datasets_);
  }
  /// The same in an epoch, for datasets whose samples differ from epoch to epoch. A sample that cannot be read is an
  /// error. It is not replaced, because the replacement would not belong to the samples of the other datasets.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    return std::apply(
        [&](const auto*... dataset) { return Batch(detail::read_batch(*dataset, indices, epoch, {})...); }, datasets_);
  }

 private:
  std::tuple<const Datasets*...> datasets_;
  int64_t size_;
};
template <typename... Datasets>
StackDataset(const Datasets&...) -> StackDataset<Datasets...>;

}  // namespace ddp
