// MNIST, Fashion-MNIST and their like in memory, from IDX files.
#pragma once

#include <filesystem>

#include <ddprun/data/byte_images.h>

namespace ddp {

/// The images of one split: uint8 (N, 1, 28, 28), labels 0 to 9.
class Mnist : public ByteImages {
 public:
  enum class Split { kTrain, kTest };

  /// Reads {train,t10k}-images-idx3-ubyte and -labels-idx1-ubyte, plain or with .gz. `normalization`'s first channel is
  /// used. Throws DataError, one line that names the file, for anything missing, cut short, of another kind or with
  /// labels above 9, and std::invalid_argument for a normalization that is not finite.
  Mnist(const std::filesystem::path& dir, Split split, const Normalization& normalization = {});
};

}  // namespace ddp
