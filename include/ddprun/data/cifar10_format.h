// The binary layout of CIFAR-10, read strictly into memory of the caller. No LibTorch here.
//
// A file is a row of records: one label byte (0 to 9), then 3 x 32 x 32 pixel bytes, channel by channel (red, green,
// blue), row by row. https://www.cs.toronto.edu/~kriz/cifar.html, "Binary version".
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ddp {

enum class Cifar10Split { kTrain, kTest };

inline constexpr int64_t kCifar10Classes = 10;
inline constexpr int64_t kCifar10Channels = 3;
inline constexpr int64_t kCifar10Side = 32;
inline constexpr int64_t kCifar10ImageBytes = kCifar10Channels * kCifar10Side * kCifar10Side;
inline constexpr int64_t kCifar10RecordBytes = 1 + kCifar10ImageBytes;
/// The official files hold 10,000 images each; a file of more than this is taken for something else, so that nothing
/// allocates what a hostile file claims.
inline constexpr int64_t kCifar10MaxImagesPerFile = 1'000'000;

/// The files of one split that are in `dir`, in order: test_batch.bin, or data_batch_1.bin to data_batch_5.bin of which
/// the last ones may be absent. Throws DataError when the folder, the first file or one in between is missing.
std::vector<std::filesystem::path> cifar10_files(const std::filesystem::path& dir, Cifar10Split split);

/// Number of images in one file, from its size. Throws DataError unless it is a regular file of whole records.
int64_t cifar10_image_count(const std::filesystem::path& file);

/// Reads one file. `labels` has room for cifar10_image_count(file) labels and `images` for as many images of
/// kCifar10ImageBytes. Throws DataError when the file cannot be read, ends early or has a label above 9.
void read_cifar10_file(const std::filesystem::path& file, std::span<uint8_t> images, std::span<int64_t> labels);

/// The ten class names in batches.meta.txt, or "0" to "9" without that file. Throws DataError when the file is there
/// but does not hold ten printable names.
std::vector<std::string> read_cifar10_class_names(const std::filesystem::path& dir);

}  // namespace ddp
