// Which files a data set on disk has: image folders, splits of them, the file of class indices; pairs of NIfTI volumes.
// No LibTorch here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace ddp {

/// The files of an image folder, or some of them.
struct ImageListing {
  std::vector<std::string> class_names{};      ///< sub-folders, sorted; a class's index is its place here
  std::vector<std::filesystem::path> files{};  ///< by class, then by path
  std::vector<int64_t> labels{};               ///< of each file
  /// One line on what is not among the files: pictures that this build cannot read, links that point to nothing or to a
  /// folder that they lie in, pipes; of each kind how many, the first by its path, and why. Empty if nothing is.
  std::string notice{};
};

/// Lists the .jpg, .jpeg, .png, .ppm, .bmp, .pgm, .tif, .tiff and .webp files (capitals too) anywhere below each folder
/// `<root>/<class>`, torchvision's pictures in its order. Links to files and folders are followed, except into a folder
/// that they lie in. What is left out, TIFF and WebP where this build cannot read them and links without a target, is
/// named in `notice` and in one line on standard error (rank 0's where RANK is set). Throws DataError when the folder
/// cannot be read or has no class folder, and naming the class for one without any image.
ImageListing list_image_folder(const std::filesystem::path& root);

/// The two parts of a listing that split_listing() makes.
struct ImageSplit {
  ImageListing train{};       ///< the files to train on
  ImageListing validation{};  ///< the others
};

/// Takes from each class the same part for validation, rounded down, chosen by the seed: which files are taken depends
/// on their order and the seed alone. Throws std::invalid_argument unless 0 ≤ validation_ratio ≤ 1.
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
