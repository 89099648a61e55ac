// Any dataset of batches, for programs that choose theirs while they run.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>

#include <ddprun/data/batch.h>
#include <ddprun/data/loader.h>

namespace ddp {

/// Owns a dataset of whatever type that gives ddp::Batch. As safe from several threads as that is. Copies share it. (A
/// dataset that replaces samples takes them from the batch here, not from the rank's share of the epoch.)
///
///     const ddp::AnyDataset train = dir.empty() ? ddp::AnyDataset(ddp::SyntheticImages()) : ddp::ImageFolder(…);
class AnyDataset {
 public:
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

  int64_t size() const { return size_; }
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const { return read_(indices, epoch); }

 private:
  int64_t size_;
  std::function<Batch(std::span<const int64_t>, int64_t)> read_;
};

}  // namespace ddp
