// A dataset that gives one sample at a time, for the loaders.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/collate.h>

namespace ddp {

/// A dataset of `get(i)`, or `get(i, epoch)` for what differs from epoch to epoch; the samples of a batch are stacked,
/// so they have one shape. A sample is a pair of data and target, anything with `.data` and `.target`, or a tensor
/// alone; numbers become tensors, integers int64. As safe from several threads as `get` is.
///
///     ddp::Samples rows(1000, [&](int64_t i) { return std::pair(features[i], label_of(i)); });
///     ddp::DeviceLoader loader(rows, sampler, group.device(), {.batch_size = 32, .workers = 2});
class Samples {
 public:
  /// Throws std::invalid_argument for a negative size.
  template <typename Get>
  requires std::is_invocable_v<const Get&, int64_t> || std::is_invocable_v<const Get&, int64_t, int64_t> Samples(
      int64_t size, Get get)
      : size_(size) {
    if (size < 0) throw std::invalid_argument("Samples: the size is negative: " + std::to_string(size));
    get_ = [get = std::move(get)](int64_t index, [[maybe_unused]] int64_t epoch) {
      if constexpr (std::is_invocable_v<const Get&, int64_t, int64_t>) {
        return detail::parts_of(get(index, epoch));
      } else {
        return detail::parts_of(get(index));
      }
    };
  }

  /// Of an object with `size()` and such a `get`, which must outlive it.
  template <typename Source>
  requires requires(const Source& source) {
    static_cast<int64_t>(source.size());
    source.get(int64_t{});
  }
  explicit Samples(const Source& source)
      : Samples(static_cast<int64_t>(source.size()), [&source](int64_t index) { return source.get(index); }) {}
  template <typename Source>
  requires requires(const Source& source) { source.get(int64_t{}, int64_t{}); }
  explicit Samples(const Source& source)
      : Samples(static_cast<int64_t>(source.size()),
                [&source](int64_t index, int64_t epoch) { return source.get(index, epoch); }) {}
  template <typename Source>
  requires requires(const Source& source) { source.size(); }
  explicit Samples(const Source&& source) = delete;

  int64_t size() const { return size_; }

  /// These samples, stacked. Throws std::out_of_range for another index, and what `get` throws.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const {
    std::vector<Batch> samples;
    for (const int64_t index : indices) {
      if (index < 0 || index >= size_) {
        throw std::out_of_range("Samples: index " + std::to_string(index) + " is out of range for " +
                                std::to_string(size_) + " samples");
      }
      samples.push_back(get_(index, epoch));
    }
    return detail::stacked(samples);
  }

 private:
  int64_t size_;
  std::function<Batch(int64_t, int64_t)> get_;
};

}  // namespace ddp
