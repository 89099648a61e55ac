// Pictures in a folder per class, read when they are asked for.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include <ddprun/data/batch.h>
#include <ddprun/data/byte_source.h>
#include <ddprun/data/image.h>
#include <ddprun/data/listings.h>

namespace ddp {

/// Settings of an ImageFolder, all optional.
struct ImageFolderOptions {
  int64_t size = 224;  ///< height and width of what a network gets
  /// Training: a random part (8 to 100 % of the area), mirrored half of the time. Else: the centre of the picture, its
  /// shorter side scaled to `shorter_side`.
  bool augment = false;
  int64_t shorter_side = 256;         ///< without `augment`, in pixels
  ColorJitterOptions color_jitter{};  ///< with `augment`, after cropping and mirroring
  uint64_t seed = 0;                  ///< of the augmentation
  Normalization normalization = {.mean = {0.485F, 0.456F, 0.406F}, .stddev = {0.229F, 0.224F, 0.225F}};  ///< ImageNet's
  /// Put another picture in the place of one that cannot be read, and count it, instead of throwing.
  bool skip_unreadable = false;
  DecodeOptions decode{};  ///< how files are read
};

/// The pictures of a listing, for a Loader. Safe from several threads.
///
///     auto split = ddp::split_listing(ddp::list_image_folder(root), 0.2, /*seed=*/0);
///     ddp::ImageFolder train(split.train, {.augment = true});
class ImageFolder {
 public:
  /// Throws std::invalid_argument for sizes below 1, a crop larger than the picture, an unusable normalization and
  /// colour jitter out of range.
  explicit ImageFolder(ImageListing listing, const ImageFolderOptions& options = {});

  /// Number of pictures.
  int64_t size() const { return static_cast<int64_t>(listing_.files.size()); }
  /// The files, classes and labels that it reads.
  const ImageListing& listing() const { return listing_; }

  /// The pictures with these indices: data float32 (B, 3, size, size), target int64 (B). Depends on seed, epoch and
  /// index alone. Throws std::out_of_range, and DataError naming the file that cannot be read. With skip_unreadable the
  /// batch is still full: seed, epoch and index choose which of `share`'s pictures (for a Loader the rank's
  /// samples of the epoch, else the batch itself) stands there, with its own target, and DataError is thrown only when
  /// none of up to 100 of them can be read.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch, std::span<const int64_t> share) const;
  /// The same outside of a Loader: replacements come from the batch itself.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const { return get_batch(indices, epoch, indices); }

  /// How often a picture could not be read so far, with skip_unreadable.
  int64_t skipped() const { return skipped_->load(); }

 private:
  void check_index(int64_t index) const;
  int64_t read_or_replace(int64_t index, int64_t epoch, std::span<const int64_t> share, std::span<float> out) const;
  int64_t replace(int64_t index, int64_t epoch, std::span<const int64_t> share, const DataError& error,
                  std::span<float> out) const;
  void read(int64_t index, SampleRandom random, std::span<float> out) const;
  void transform(const Image& image, SampleRandom random, std::span<float> out) const;

  ImageListing listing_;
  ImageFolderOptions options_;
  NormalizationTable table_;
  std::shared_ptr<std::atomic<int64_t>> skipped_;
};

}  // namespace ddp
