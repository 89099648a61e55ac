// A dataset of LibTorch's, torch::data::datasets, for the loaders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <stdexcept>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/collate.h>

namespace ddp {

/// A torch::data dataset of examples, with or without `map(Stack<>())`, for a Loader or DeviceLoader: workers in order,
/// copies to the device beside the computation, and resumes in mid-epoch, which torch::data's loader has not.
///
///     ddp::TorchDataset train(torch::data::datasets::MNIST("mnist").map(torch::data::transforms::Normalize<>(0.13,
///     0.31)));
///     ddp::DistributedSampler sampler(train.size(), group);
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 64, .workers = 2});
///
/// Examples without a target give an undefined one. Safe from several threads: each of them works on a copy of the
/// dataset of its own, as in torch::data's loader; what is shared between copies (make_shared_dataset) has to be safe
/// itself. Transforms that draw random numbers take LibTorch's generator, so the data depends on the number of workers
/// there. Copies of a TorchDataset share all of it.
template <typename Dataset>
class TorchDataset {
 public:
  /// Throws std::invalid_argument for a dataset that does not know its size.
  explicit TorchDataset(Dataset dataset) : pool_(std::make_shared<Pool>(std::move(dataset))) {
    const auto size = pool_->prototype.size();
    if (!size.has_value()) throw std::invalid_argument("TorchDataset: the dataset does not know its size");
    size_ = static_cast<int64_t>(*size);
  }

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

  // A copy that no other thread has, for as long as this lives.
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

}  // namespace ddp
