// CIFAR-10 with the usual augmentation, a whole batch at a time.
#pragma once

#include <cstdint>
#include <span>

#include "data/batch.h"
#include "data/cifar10.h"
#include "data/crop_flip.h"

namespace ddp {

/// Gives each image cropped and mirrored at random, anew in each epoch: for a Loader. Refers to the dataset, which must
/// outlive it. Safe from several threads.
class AugmentedCifar10 {
 public:
  explicit AugmentedCifar10(const Cifar10& images, const CropFlipOptions& options = {});

  int64_t size() const { return images_->size(); }

  /// As Cifar10::get_batch(), augmented. What an image looks like depends on seed, epoch and index alone.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const;

 private:
  const Cifar10* images_;
  CropFlipOptions options_;
};

}  // namespace ddp
