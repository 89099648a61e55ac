// Readers of files that hold data sets: CIFAR-10, CIFAR-100, IDX (MNIST) and NIfTI. They read strictly: a file that is
// damaged or claims more than it holds is refused before memory for it is taken. No LibTorch here.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ddp {

/// Which files of CIFAR-10: those for training or those for testing.
enum class Cifar10Split { kTrain, kTest };

inline constexpr int64_t kCifar10Classes = 10;  ///< number of classes
inline constexpr int64_t kCifar10Channels = 3;  ///< red, green, blue
inline constexpr int64_t kCifar10Side = 32;     ///< height and width of a picture
inline constexpr int64_t kCifar10ImageBytes = kCifar10Channels * kCifar10Side * kCifar10Side;  ///< bytes of one picture
inline constexpr int64_t kCifar10RecordBytes = 1 + kCifar10ImageBytes;  ///< bytes of one label and its picture
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

inline constexpr int64_t kCifar100CoarseClasses = 20;  ///< number of coarse classes
inline constexpr int64_t kCifar100FineClasses = 100;   ///< number of fine classes

/// The pictures and labels of one file of CIFAR-100.
struct Cifar100Content {
  std::vector<uint8_t> images{};         ///< count × 3 × 32 × 32
  std::vector<int64_t> coarse_labels{};  ///< 0 … 19
  std::vector<int64_t> fine_labels{};    ///< 0 … 99
};

/// Reads train.bin or test.bin. Throws DataError, one line that names the file, for anything but whole records with
/// labels in range.
Cifar100Content read_cifar100_file(const std::filesystem::path& file);

/// The names in fine_label_names.txt or coarse_label_names.txt, one a line: exactly `count`, without control
/// characters. Throws DataError.
std::vector<std::string> read_label_names(const std::filesystem::path& file, int64_t count);

/// An array of bytes in row-major order.
struct IdxArray {
  std::vector<int64_t> shape{};   ///< lengths of the dimensions
  std::vector<uint8_t> values{};  ///< the bytes, as many as the product of `shape`
};

/// Reads an IDX file of unsigned bytes with `dimensions` dimensions, plain or gzip-compressed. Throws DataError, one
/// line that names the file, when it is another kind of file, is cut short or has more in it than its header says.
IdxArray read_idx(const std::filesystem::path& path, int dimensions);

/// One volume. `values` has x fastest, so it is the tensor (depth, height, width) in row-major order.
struct NiftiVolume {
  int64_t depth = 0;                  ///< z, dim[3]
  int64_t height = 0;                 ///< y, dim[2]
  int64_t width = 0;                  ///< x, dim[1]
  std::array<float, 3> spacing_mm{};  ///< of neighbours along depth, height and width (pixdim; its unit is taken as mm)
  std::vector<float> values{};        ///< scaled by scl_slope and scl_inter where the header asks for it
};

/// Reads a single-file NIfTI-1 volume of either byte order, with integers of 8 to 64 bits or floats; scaling is done in
/// double precision and rounded to float once, as nibabel's get_fdata(dtype=float32) gives it for whole numbers. Throws
/// DataError, one line that names the file, for other files, more than three dimensions longer than 1, sizes that the
/// file cannot hold, and other data types.
NiftiVolume read_nifti(const std::filesystem::path& path);

}  // namespace ddp
