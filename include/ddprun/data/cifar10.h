// CIFAR-10 in memory, from the official binary files.
#pragma once

#include <filesystem>

#include <ddprun/data/byte_images.h>
#include <ddprun/data/cifar10_format.h>

namespace ddp {

/// The images of one split: uint8 (N, 3, 32, 32), labels 0 to 9.
///
///     ddp::Cifar10 train(dir, ddp::Cifar10::Split::kTrain, {.mean = {0.5, 0.5, 0.5}, .stddev = {0.5, 0.5, 0.5}});
///     for (auto& batch : ddp::batches(train, sampler.indices(), 16)) { … batch.data … batch.target … }
///     auto loader = torch::data::make_data_loader(train, sampler, 16);    // the same batches
class Cifar10 : public ByteImages {
 public:
  using Split = Cifar10Split;

  /// Reads data_batch_1.bin to data_batch_5.bin (the last ones may be absent) or test_batch.bin, and the class names in
  /// batches.meta.txt when it is there ("0" to "9" without). Throws DataError, one line that names the file, for
  /// anything missing, cut short or out of range, and std::invalid_argument for a normalization that is not finite.
  Cifar10(const std::filesystem::path& dir, Split split, const Normalization& normalization = {});
};

}  // namespace ddp
