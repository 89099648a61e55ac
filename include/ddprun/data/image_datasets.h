// Pictures: small ones of one size in memory, a whole batch gathered at a time (CIFAR-10, CIFAR-100, MNIST, made-up
// ones, and the usual augmentation), and files in a folder per class; volumes for segmentation.
#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

namespace ddp {
namespace detail {
class BatchMemory;
}

/// Labelled pictures; copies share them. Reading is const and safe from several threads. Cifar10, Cifar100 and Mnist
/// are such datasets read from files.
class ByteImages {
 public:
  /// `images` uint8 (N, C, H, W) with 1 to 3 channels and `labels` int64 (N), both contiguous on the CPU; they are
  /// shared, not copied. `name` is for messages. Throws std::invalid_argument for other tensors, and for a
  /// normalization that is not finite (its first C channels are used).
  ByteImages(at::Tensor images, at::Tensor labels, const Normalization& normalization = {},
             std::vector<std::string> class_names = {}, std::string name = "ByteImages");

  /// Number of pictures.
  int64_t size() const { return labels_.numel(); }
  /// Channels of a picture, 1 to 3.
  int64_t channels() const { return images_.size(1); }
  /// Height of a picture in pixels.
  int64_t height() const { return images_.size(2); }
  /// Width of a picture in pixels.
  int64_t width() const { return images_.size(3); }

  /// uint8 (N, C, H, W), not normalized.
  const at::Tensor& images() const { return images_; }
  /// int64 (N).
  const at::Tensor& labels() const { return labels_; }
  /// What get_batch() makes of each byte.
  const NormalizationTable& table() const { return table_; }
  /// Names by label; empty when they are not known.
  const std::vector<std::string>& class_names() const { return class_names_; }

  /// Throws std::out_of_range unless it is the index of a picture.
  void check_index(int64_t index) const;

  /// The pictures with these indices, in this order: data float32 (B, C, H, W), normalized, and target int64 (B), both
  /// freshly allocated on the CPU. Gathering and conversion are one pass over the bytes. Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;
  /// The same for indices as torch::data's loaders give them.
  Batch get_batch(std::span<const size_t> indices) const;

  /// The type of batch, for torch::data's loaders.
  using BatchType = Batch;
  /// The type of a request for a batch, for torch::data's loaders.
  using BatchRequestType = std::vector<size_t>;
  /// For torch::data's loaders: get_batch() is given indices.
  static constexpr bool is_stateful = false;

 private:
  template <typename Index>
  Batch gather(std::span<const Index> indices) const;

  at::Tensor images_;
  at::Tensor labels_;
  NormalizationTable table_;
  std::vector<std::string> class_names_;
  std::string name_;
};

/// The images of one split: uint8 (N, 3, 32, 32), labels 0 to 9.
///
///     ddp::Cifar10 train(dir, ddp::Cifar10::Split::kTrain, {.mean = {0.5, 0.5, 0.5}, .stddev = {0.5, 0.5, 0.5}});
///     for (auto& batch : ddp::batches(train, sampler.indices(), 16)) { … batch.data … batch.target … }
///     auto loader = torch::data::make_data_loader(train, sampler, 16);    // the same batches
class Cifar10 : public ByteImages {
 public:
  /// Which files: kTrain or kTest.
  using Split = Cifar10Split;

  /// Reads data_batch_1.bin to data_batch_5.bin (the last ones may be absent) or test_batch.bin, and the class names in
  /// batches.meta.txt when it is there ("0" to "9" without). Throws DataError, one line that names the file, for
  /// anything missing, truncated or out of range, and std::invalid_argument for a normalization that is not finite.
  Cifar10(const std::filesystem::path& dir, Split split, const Normalization& normalization = {});
};

/// The images of one split: uint8 (N, 3, 32, 32), labels 0 to 99, or 0 to 19 for the coarse classes.
class Cifar100 : public ByteImages {
 public:
  /// Which files.
  enum class Split { kTrain, kTest };
  /// Which of a picture's two labels: of 100 or of 20 classes.
  enum class Labels { kFine, kCoarse };

  /// Reads train.bin or test.bin, and the class names in fine_label_names.txt or coarse_label_names.txt when it is
  /// there. Throws DataError, one line that names the file, and std::invalid_argument for a normalization that is not
  /// finite.
  Cifar100(const std::filesystem::path& dir, Split split, const Normalization& normalization = {},
           Labels labels = Labels::kFine);
};

/// The images of one split: uint8 (N, 1, 28, 28), labels 0 to 9.
class Mnist : public ByteImages {
 public:
  /// Which files.
  enum class Split { kTrain, kTest };

  /// Reads {train,t10k}-images-idx3-ubyte and -labels-idx1-ubyte, plain or with .gz. `normalization`'s first channel is
  /// used. Throws DataError, one line that names the file, for anything missing, truncated, of another kind or with
  /// labels above 9, and std::invalid_argument for a normalization that is not finite.
  Mnist(const std::filesystem::path& dir, Split split, const Normalization& normalization = {});
};

/// The pictures of a Cifar10, Cifar100 …, cropped and mirrored at random, differently in each epoch; for a Loader.
/// Refers to the dataset, which must outlive it. Safe from several threads.
class AugmentedImages {
 public:
  /// Throws std::invalid_argument for a negative padding.
  explicit AugmentedImages(const ByteImages& images, const CropFlipOptions& options = {});
  explicit AugmentedImages(const ByteImages&& images, const CropFlipOptions& options = {}) = delete;

  /// Number of pictures.
  int64_t size() const { return images_->size(); }

  /// As ByteImages::get_batch(), augmented. What a picture looks like depends on seed, epoch and index alone.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const;

 private:
  const ByteImages* images_;
  CropFlipOptions options_;
};

/// Settings of SyntheticImages, all optional.
struct SyntheticImagesOptions {
  int64_t size = 1024;     ///< number of pictures
  int64_t first = 0;       ///< index of the first picture among all pictures of this seed: another value gives a
                           ///< validation set
  int64_t channels = 3;    ///< of a picture
  int64_t height = 224;    ///< of a picture, in pixels
  int64_t width = 224;     ///< of a picture, in pixels
  int64_t classes = 1000;  ///< number of classes; each picture's is drawn at random
  uint64_t seed = 0;       ///< the pictures depend on it and on their index
};

/// Noise with mean 0 and variance 1, uniformly distributed, around a mean that depends on the class, so that a network
/// can learn it. A picture depends on seed and first + index alone. Safe from several threads.
class SyntheticImages {
 public:
  /// Throws std::invalid_argument for sizes below 1.
  explicit SyntheticImages(const SyntheticImagesOptions& options = {});

  /// Number of pictures.
  int64_t size() const { return options_.size; }

  /// data float32 (B, channels, height, width), target int64 (B). Throws std::out_of_range.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  SyntheticImagesOptions options_;
};

/// Settings of an ImageFolder, all optional.
struct ImageFolderOptions {
  int64_t size = 224;  ///< height and width of what a network gets
  /// Training: a random part (8 to 100 % of the area), mirrored half of the time. Otherwise the centre of the picture,
  /// whose shorter side is scaled to `shorter_side`.
  bool augment = false;
  int64_t shorter_side = 256;         ///< without `augment`, in pixels
  ColorJitterOptions color_jitter{};  ///< with `augment`, after cropping and mirroring
  uint64_t seed = 0;                  ///< of the augmentation
  Normalization normalization = {.mean = {0.485F, 0.456F, 0.406F}, .stddev = {0.229F, 0.224F, 0.225F}};  ///< ImageNet's
  /// Replaces a picture that cannot be read by another one, and counts it, instead of throwing.
  bool skip_unreadable = false;
  DecodeOptions decode{};  ///< how files are read
  /// How much of JPEG files is decoded: kRows takes the time that the crop takes, for the same pixels; kReduced is
  /// faster where photographs are much larger than `size`. See PartDecoding.
  PartDecoding decoding = PartDecoding::kWhole;
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
  /// batch is still full: an unreadable picture is replaced by a picture of `share` (for a Loader the rank's samples of
  /// the epoch, otherwise the batch itself) with its own target. Seed, epoch and index determine which one. DataError
  /// is thrown only if up to 100 replacements cannot be read either.
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
  ResizedPart part_of(int64_t height, int64_t width, SampleRandom& random) const;

  ImageListing listing_;
  ImageFolderOptions options_;
  NormalizationTable table_;
  std::shared_ptr<std::atomic<int64_t>> skipped_;
  std::shared_ptr<const detail::BatchMemory> memory_;
};

/// Settings of Volumes, all optional.
struct VolumesOptions {
  std::array<int64_t, 3>
      size{};             ///< depth, height and width of what a network gets; {0, 0, 0}: whole volumes, of one shape
  bool augment = false;   ///< training: a random part, axes mirrored half of the time. Else: the centre
  int64_t channels = 1;   ///< volumes in an image's file, such as its modalities: dim[4] of a series
  bool normalize = true;  ///< each volume to mean 0 and standard deviation 1 over its voxels
  int64_t classes = 0;    ///< labels are 0 … classes-1; 0: not checked
  uint64_t seed = 0;      ///< of the augmentation
};

/// The volumes of a list of pairs, for a Loader. Safe from several threads.
///
///     ddp::Volumes train(ddp::list_volume_pairs(root / "imagesTr", root / "labelsTr"), {.size = {64, 64, 64}, .augment
///     = true});
class Volumes {
 public:
  /// Throws std::invalid_argument for a size that is neither positive nor zero on all axes, and for no channels.
  explicit Volumes(std::vector<VolumePair> pairs, const VolumesOptions& options = {});

  /// Number of volumes.
  int64_t size() const { return static_cast<int64_t>(pairs_.size()); }
  /// The files that it reads.
  const std::vector<VolumePair>& pairs() const { return pairs_; }

  /// These volumes: data float32 (B, channels, D, H, W), target int64 (B, D, H, W), zeros where a volume is smaller
  /// than `size`. Depends on seed, epoch and index alone. Throws std::out_of_range, and DataError naming the file that
  /// cannot be read, has another number of channels, differs from its image's shape or (without `size`) from the
  /// batch's, or holds labels that are not a class.
  Batch get_batch(std::span<const int64_t> indices, int64_t epoch) const;

 private:
  std::vector<VolumePair> pairs_;
  VolumesOptions options_;
};

}  // namespace ddp
