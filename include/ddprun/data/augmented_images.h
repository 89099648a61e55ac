// Small pictures with the usual augmentation, a whole batch at a time.
#pragma once

#include <cstdint>
#include <span>

#include <ddprun/data/batch.h>
#include <ddprun/data/byte_images.h>
#include <ddprun/data/crop_flip.h>

namespace ddp {

/// Gives each picture of a Cifar10, Cifar100 … cropped and mirrored at random, anew in each epoch: for a Loader. Refers
/// to the dataset, which must outlive it. Safe from several threads.
class AugmentedImages {
 public:
  /// Throws std::invalid_argument for a negative padding.
  explicit AugmentedImages(const ByteImages& images, const CropFlipOptions& options = {});
  explicit AugmentedImages(const ByteImages&& images, const CropFlipOptions& options = {}) = delete;

  int64_t size() const { return images_->size(); }

  /// As ByteImages::get_batch(), augmented. What a picture looks like depends on seed, epoch and index alone.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const;

 private:
  const ByteImages* images_;
  CropFlipOptions options_;
};

}  // namespace ddp
