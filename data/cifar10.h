// CIFAR-10 in memory: the official binary files, a whole batch gathered at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "data/batch.h"
#include "data/cifar10_format.h"
#include "data/normalization.h"

namespace ddp {

/// The images of one split, held as bytes; copies share them. Reading is const and safe from several threads.
///
///     ddp::Cifar10 train(dir, ddp::Cifar10::Split::kTrain, {.mean = {0.5, 0.5, 0.5}, .stddev = {0.5, 0.5, 0.5}});
///     for (auto& batch : ddp::batches(train, sampler.indices(), 16)) { … batch.data … batch.target … }
///     auto loader = torch::data::make_data_loader(train, sampler, 16);    // the same batches
class Cifar10 {
 public:
  using Split = Cifar10Split;

  /// Reads data_batch_1.bin to data_batch_5.bin (the last ones may be absent) or test_batch.bin, and the class names in
  /// batches.meta.txt when it is there. Throws DataError, one line that names the file, for anything missing, cut short
  /// or out of range, and std::invalid_argument for a normalization that is not finite.
  Cifar10(const std::filesystem::path& dir, Split split, const Normalization& normalization = {});

  /// Number of images.
  int64_t size() const { return labels_.numel(); }

  /// uint8 (N, 3, 32, 32), not normalized.
  const at::Tensor& images() const { return images_; }
  /// int64 (N), 0 to 9.
  const at::Tensor& labels() const { return labels_; }
  /// What get_batch() makes of each byte.
  const NormalizationTable& table() const { return table_; }
  /// Ten names; "0" to "9" without batches.meta.txt.
  const std::vector<std::string>& class_names() const { return class_names_; }

  /// The images with these indices, in this order: data float32 (B, 3, 32, 32), normalized, and target int64 (B), both
  /// freshly allocated on the CPU. Gathering and conversion are one pass over the bytes. Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;
  Batch get_batch(std::span<const size_t> indices) const;

  /// What torch::data's loaders ask a dataset for.
  using BatchType = Batch;
  using BatchRequestType = std::vector<size_t>;
  static constexpr bool is_stateful = false;

 private:
  template <typename Index>
  Batch gather(std::span<const Index> indices) const;

  NormalizationTable table_;
  std::vector<std::string> class_names_;
  at::Tensor images_;
  at::Tensor labels_;
};

}  // namespace ddp
