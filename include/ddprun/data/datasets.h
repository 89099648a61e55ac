// Datasets made of functions of an index, tensors, LibTorch's datasets or a text.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/detail/data/collate.h>

namespace ddp {

/// A dataset whose sample i is `get(i)`, or `get(i, epoch)` if samples differ from epoch to epoch. The samples of a
/// batch are stacked, so all have the same shape. A sample is a pair of data and target, anything with `.data` and
/// `.target`, or a tensor alone; numbers become tensors, integers int64. Several threads may use it if they may call
/// `get`.
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
  /// Of an object whose `get` takes index and epoch.
  template <typename Source>
  requires requires(const Source& source) { source.get(int64_t{}, int64_t{}); }
  explicit Samples(const Source& source)
      : Samples(static_cast<int64_t>(source.size()),
                [&source](int64_t index, int64_t epoch) { return source.get(index, epoch); }) {}
  template <typename Source>
  requires requires(const Source& source) { source.size(); }
  explicit Samples(const Source&& source) = delete;

  /// Number of samples.
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

/// As torch.utils.data.TensorDataset with two tensors. Safe from several threads; copies share the tensors.
class TensorDataset {
 public:
  /// `data` (N, …) and `target` (N, …), on one device. Throws std::invalid_argument when their first dimensions differ.
  TensorDataset(at::Tensor data, at::Tensor target);

  /// Number of samples: the first dimension.
  int64_t size() const { return data_.size(0); }

  /// These samples, in this order, freshly allocated on the tensors' device. Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  at::Tensor data_;
  at::Tensor target_;
};

/// A torch::data dataset of examples, with or without `map(Stack<>())`, for a Loader or DeviceLoader: batches in order
/// with several workers, copies to the device during the computation, and resumes in mid-epoch, none of which
/// torch::data's loader offers.
///
///     ddp::TorchDataset train(torch::data::datasets::MNIST("mnist").map(torch::data::transforms::Normalize<>(0.13,
///     0.31)));
///     ddp::DistributedSampler sampler(train.size(), group);
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 64, .workers = 2});
///
/// Examples without a target give an undefined one. Several threads may use it: each works on its own copy of the
/// dataset, as in torch::data's loader. Data that these copies share (make_shared_dataset) must be thread-safe.
/// Transforms that draw random numbers use LibTorch's generator, so their results depend on the number of workers.
/// Copies of a TorchDataset share all of it.
template <typename Dataset>
class TorchDataset {
 public:
  /// Throws std::invalid_argument for a dataset that does not know its size.
  explicit TorchDataset(Dataset dataset) : pool_(std::make_shared<Pool>(std::move(dataset))) {
    const auto size = pool_->prototype.size();
    if (!size.has_value()) throw std::invalid_argument("TorchDataset: the dataset does not know its size");
    size_ = static_cast<int64_t>(*size);
  }

  /// Number of examples.
  int64_t size() const { return size_; }

  /// The examples with these indices, stacked if the dataset has not done so.
  Batch get_batch(std::span<const int64_t> indices) const {
    const Lease lease(*pool_);
    const std::vector<size_t> request(indices.begin(), indices.end());
    auto found = lease->get_batch(request);
    if constexpr (requires { found.data; }) {
      return detail::parts_of(found);
    } else {
      std::vector<Batch> samples;
      for (const auto& example : found) samples.push_back(detail::parts_of(example));
      return detail::stacked(samples);
    }
  }

 private:
  struct Pool {
    explicit Pool(Dataset dataset) : prototype(std::move(dataset)) {}
    Dataset prototype;
    std::mutex mutex{};
    std::vector<std::unique_ptr<Dataset>> idle{};
  };

  // Holds a copy of the dataset that no other thread uses while this object exists.
  class Lease {
   public:
    explicit Lease(Pool& pool) : pool_(pool) {
      const std::lock_guard lock(pool_.mutex);
      if (pool_.idle.empty()) {
        dataset_ = std::make_unique<Dataset>(pool_.prototype);
      } else {
        dataset_ = std::move(pool_.idle.back());
        pool_.idle.pop_back();
      }
    }
    ~Lease() {
      const std::lock_guard lock(pool_.mutex);
      pool_.idle.push_back(std::move(dataset_));
    }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Dataset* operator->() const { return dataset_.get(); }

   private:
    Pool& pool_;
    std::unique_ptr<Dataset> dataset_;
  };

  std::shared_ptr<Pool> pool_;
  int64_t size_ = 0;
};

/// Sample i consists of the `length` bytes from i * length on; its target has the byte that follows each of these.
/// Remaining bytes at the end are not used. Safe from several threads.
///
///     ddp::ByteText train(ddp::read_small_file("tale.txt", 1 << 30), 128);
class ByteText {
 public:
  /// Throws std::invalid_argument for a length below 1 and for a text that has no sequence of that length.
  ByteText(std::string text, int64_t length);

  /// Number of sequences.
  int64_t size() const { return (static_cast<int64_t>(text_.size()) - 1) / length_; }

  /// data and target int64 (B, length), values 0 to 255. Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  std::string text_;
  int64_t length_;
};

}  // namespace ddp
