// Readers of files that hold data sets: CIFAR-10, CIFAR-100, IDX (MNIST) and NIfTI; and lists of the files of a data
// set: image folders, splits of them, pairs of volumes. Readers are strict: a file that is damaged, or whose header
// promises more data than it has, is an error before memory for the data is allocated. Does not use LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

namespace ddp {

/// Which files of CIFAR-10 are read: the training or the test files.
enum class Cifar10Split { kTrain, kTest };

inline constexpr int64_t kCifar10Classes = 10;  ///< number of classes
inline constexpr int64_t kCifar10Channels = 3;  ///< red, green, blue
inline constexpr int64_t kCifar10Side = 32;     ///< height and width of a picture
inline constexpr int64_t kCifar10ImageBytes = kCifar10Channels * kCifar10Side * kCifar10Side;  ///< bytes of one picture
inline constexpr int64_t kCifar10RecordBytes = 1 + kCifar10ImageBytes;  ///< bytes of one label and its picture
/// The official files hold 10,000 images each; a file with more images is rejected, so that a malicious file cannot
/// cause a large allocation.
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
/// line that names the file, when it is another kind of file, is truncated or has more in it than its header says.
IdxArray read_idx(const std::filesystem::path& path, int dimensions);

/// One volume. `values` has x fastest, so it is the tensor (depth, height, width) in row-major order.
struct NiftiVolume {
  int64_t depth = 0;                  ///< z, dim[3]
  int64_t height = 0;                 ///< y, dim[2]
  int64_t width = 0;                  ///< x, dim[1]
  std::array<float, 3> spacing_mm{};  ///< of neighbours along depth, height and width (pixdim; its unit is taken as mm)
  std::vector<float> values{};        ///< scaled by scl_slope and scl_inter where the header asks for it
  int64_t volumes = 1;                ///< dim[4]: points in time or channels, one after the other in `values`
};

/// Settings of read_nifti(), all optional.
struct NiftiOptions {
  bool series = false;  ///< several volumes in one file are read too; else they are refused
};

/// Reads a single-file NIfTI-1 or NIfTI-2 volume of either byte order, with integers of 8 to 64 bits or floats; scaling
/// is done in double precision and rounded to float once, as nibabel's get_fdata(dtype=float32) gives it for whole
/// numbers. Throws DataError, one line that names the file, for other files, more than three dimensions longer than 1
/// (four for a series), sizes that the file cannot hold, and other data types.
NiftiVolume read_nifti(const std::filesystem::path& path, const NiftiOptions& options = {});

/// The files of an image folder, or some of them.
struct ImageListing {
  std::vector<std::string> class_names{};      ///< sub-folders, sorted; a class's index is its place here
  std::vector<std::filesystem::path> files{};  ///< by class, then by path
  std::vector<int64_t> labels{};               ///< of each file
  /// One line about files that were left out: pictures that this build cannot read, symbolic links without a target or
  /// to a folder that contains them, pipes. It has the number of each kind, the path of the first, and the reason.
  /// Empty if no file was left out.
  std::string notice{};
};

/// Lists the .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and .webp files (capitals too) anywhere below each folder
/// `<root>/<class>`, torchvision's pictures in its order. Symbolic links to files and folders are followed, except to a
/// folder that contains the link or `root`. Files that are left out (TIFF and WebP if this build cannot read them, and
/// links without a target) are reported in `notice` and in one line on standard error (only by rank 0 if RANK is set).
/// Throws DataError when the folder cannot be read or has no class folder, and, naming the class, when a class has no
/// image.
ImageListing list_image_folder(const std::filesystem::path& root);

/// The two parts of a listing that split_listing() makes.
struct ImageSplit {
  ImageListing train{};       ///< the files to train on
  ImageListing validation{};  ///< the others
};

/// Takes the same fraction of each class for validation, rounded down. Which files are taken depends only on their
/// order and the seed. Throws std::invalid_argument unless 0 ≤ validation_ratio ≤ 1.
ImageSplit split_listing(const ImageListing& listing, double validation_ratio, uint64_t seed);

/// Writes {"0": "daisy", "1": "roses", …}, the file that flower-classification programs keep beside their weights;
/// an older file stays until the new one is whole. Throws DataError.
void write_class_indices(const std::filesystem::path& file, const std::vector<std::string>& class_names);

/// Reads such a file: the class names in the order of their indices. Throws DataError, one line that names the file,
/// unless the indices are 0 … n-1.
std::vector<std::string> read_class_indices(const std::filesystem::path& file);

/// The files of one volume.
struct VolumePair {
  std::filesystem::path image{};  ///< the volume itself
  std::filesystem::path label{};  ///< a class for each of its voxels
};

/// Each .nii or .nii.gz file in `images` with the file of the same name in `labels`, sorted by name. An image's name
/// may end in _0000 before the extension, as nnU-Net has it. Throws DataError when a folder cannot be read or holds no
/// volume, and naming an image without labels.
std::vector<VolumePair> list_volume_pairs(const std::filesystem::path& images, const std::filesystem::path& labels);

}  // namespace ddp
