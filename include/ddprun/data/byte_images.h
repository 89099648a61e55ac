// Small pictures of one size in memory, as bytes, a whole batch gathered at a time.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/normalization.h>

namespace ddp {

/// Labelled pictures; copies share them. Reading is const and safe from several threads. Cifar10, Cifar100 and Mnist
/// are such datasets read from files.
class ByteImages {
 public:
  /// `images` uint8 (N, C, H, W) with 1 to 3 channels and `labels` int64 (N), both contiguous on the CPU; they are
  /// shared, not copied. `name` is for messages. Throws std::invalid_argument for other tensors, and for a
  /// normalization that is not finite (its first C channels are used).
  ByteImages(at::Tensor images, at::Tensor labels, const Normalization& normalization = {},
             std::vector<std::string> class_names = {}, std::string name = "ByteImages");

  /// Number of pictures.
  int64_t size() const { return labels_.numel(); }
  int64_t channels() const { return images_.size(1); }
  int64_t height() const { return images_.size(2); }
  int64_t width() const { return images_.size(3); }

  /// uint8 (N, C, H, W), not normalized.
  const at::Tensor& images() const { return images_; }
  /// int64 (N).
  const at::Tensor& labels() const { return labels_; }
  /// What get_batch() makes of each byte.
  const NormalizationTable& table() const { return table_; }
  /// Names by label; empty when they are not known.
  const std::vector<std::string>& class_names() const { return class_names_; }

  /// Throws std::out_of_range unless it is the index of a picture.
  void check_index(int64_t index) const;

  /// The pictures with these indices, in this order: data float32 (B, C, H, W), normalized, and target int64 (B), both
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

  at::Tensor images_;
  at::Tensor labels_;
  NormalizationTable table_;
  std::vector<std::string> class_names_;
  std::string name_;
};

}  // namespace ddp
