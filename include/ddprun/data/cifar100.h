// CIFAR-100 in memory, from the official binary files.
#pragma once

#include <filesystem>

#include <ddprun/data/byte_images.h>

namespace ddp {

/// The images of one split: uint8 (N, 3, 32, 32), labels 0 to 99, or 0 to 19 for the coarse classes.
class Cifar100 : public ByteImages {
 public:
  enum class Split { kTrain, kTest };
  enum class Labels { kFine, kCoarse };

  /// Reads train.bin or test.bin, and the class names in fine_label_names.txt or coarse_label_names.txt when it is
  /// there. Throws DataError, one line that names the file, and std::invalid_argument for a normalization that is not
  /// finite.
  Cifar100(const std::filesystem::path& dir, Split split, const Normalization& normalization = {},
           Labels labels = Labels::kFine);
};

}  // namespace ddp
