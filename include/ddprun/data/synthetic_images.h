// Made-up pictures, for measuring and for trying out a program without data.
#pragma once

#include <cstdint>
#include <span>

#include <ddprun/data/batch.h>

namespace ddp {

struct SyntheticImagesOptions {
  int64_t size = 1024;  ///< number of pictures
  int64_t first = 0;    ///< of all pictures of the seed, the first: for a validation set beside a training set
  int64_t channels = 3;
  int64_t height = 224;
  int64_t width = 224;
  int64_t classes = 1000;
  uint64_t seed = 0;
};

/// Noise with mean 0 and variance 1, uniformly distributed, around a mean that depends on the class, so that a network
/// can learn it. A picture depends on seed and first + index alone. Safe from several threads.
class SyntheticImages {
 public:
  /// Throws std::invalid_argument for sizes below 1.
  explicit SyntheticImages(const SyntheticImagesOptions& options = {});

  int64_t size() const { return options_.size; }

  /// data float32 (B, channels, height, width), target int64 (B). Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  SyntheticImagesOptions options_;
};

}  // namespace ddp
