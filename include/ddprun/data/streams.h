// Data sets that are too large for an index: samples in tar archives ("shards"), in the layout of the Python package
// webdataset, which are read from beginning to end; and a writer of such archives.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

namespace ddp {

/// Expands a pattern to addresses. It may contain lists and ranges in braces, "train-{000..127}.tar" or "{a,b}.tar", as
/// in bash and webdataset; "::" separates several patterns. Throws std::invalid_argument for braces that do not close,
/// and for more than 10,000,000 addresses.
std::vector<std::string> expand_shards(const std::string& pattern);

/// The files of an archive that belong to one sample: consecutive files whose names are equal up to the first dot after
/// the last slash.
class ShardSample {
 public:
  /// A file: its suffix, which is the part of its name after that dot in lower case ("jpg", "seg.png"), and its
  /// content.
  struct File {
    std::string suffix{};            ///< without the dot
    std::vector<uint8_t> content{};  ///< its bytes
  };

  std::string key{};          ///< the files' common name, with its folders
  std::string url{};          ///< the archive's address
  int64_t part = 0;           ///< the archive's number
  int64_t number = 0;         ///< of the sample in the archive
  std::vector<File> files{};  ///< in the archive's order

  /// Whether it has a file of that suffix.
  bool has(std::string_view suffix) const;
  /// The content of the file with the first of these suffixes that exists. Semicolons separate the suffixes: "jpg;png".
  /// If no such file exists, throws a DataError that names archive, key and the existing suffixes.
  const std::vector<uint8_t>& bytes(std::string_view suffixes) const;
  /// The same as text.
  std::string text(std::string_view suffixes) const;
  /// A whole number in text, such as a class in a .cls file. Throws DataError for anything else.
  int64_t number_in(std::string_view suffixes) const;
  /// A picture: uint8 (3, H, W), as read_image() gives it. Throws DataError.
  at::Tensor image(std::string_view suffixes = "jpg;jpeg;png;webp;ppm;bmp;tiff;avif;jp2",
                   const DecodeOptions& options = {}) const;
  /// A random part of the picture, for training, as torchvision's RandomResizedCrop(size): uint8 (3, size, size). Draws
  /// its random numbers from `random`. Throws DataError.
  at::Tensor random_crop(std::string_view suffixes, int64_t size, SampleRandom& random,
                         PartDecoding decoding = PartDecoding::kRows) const;
  /// The centre of the picture, for validation, as torchvision's Resize(shorter_side) and CenterCrop(size): uint8 (3,
  /// size, size). Throws DataError, and std::invalid_argument when the crop is larger than that side.
  at::Tensor centre_crop(std::string_view suffixes, int64_t shorter_side, int64_t size,
                         PartDecoding decoding = PartDecoding::kRows) const;
  /// A PNG or TIFF file's samples, as load_raster() gives them. Throws DataError.
  at::Tensor raster(std::string_view suffixes = "png;tiff;tif", const DecodeOptions& options = {}) const;
  /// A NumPy array, as load_npy() gives it. Throws DataError.
  at::Tensor npy(std::string_view suffixes = "npy") const;

 private:
  std::filesystem::path place(std::string_view suffix) const;
};

/// Settings of a WebDataset, all optional.
struct WebDatasetOptions {
  /// Skips instead of throwing: the rest of an archive after damage or a premature end, the sample before that (it may
  /// lack files), and samples for which `decode` throws. One line on standard error reports this for each archive. A
  /// batch in which no sample is left is still an error, because the ranks would have different numbers of batches.
  /// With this option the indexes of archives are not used.
  bool skip_damaged = false;
  int64_t most_file_bytes = int64_t{1} << 30;  ///< a larger file in an archive is damage
  uint64_t seed = 0;                           ///< of the random numbers that `decode` gets
};

/// Samples in tar archives, as PyPI's webdataset reads them: archives are parts of a stream, for a Loader or
/// DeviceLoader with a StreamSampler. An address is a file, `file:PATH`, or `pipe:COMMAND`, whose output is the
/// archive; archives may be gzip-compressed. Memory holds only the samples of the loader's batches and of the sampler's
/// buffer.
///
///     const auto decode = [](const ddp::ShardSample& sample, ddp::SampleRandom& random) -> ddp::Batch {
///       return {augment(sample.image("jpg"), random), torch::tensor(sample.number_in("cls"))};
///     };
///     ddp::WebDataset train("imagenet-{0000..1281}.tar", decode);
///     ddp::StreamSampler sampler(group, {.buffer = 2000});
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 64, .workers = 4});
///
/// A local archive may have an index beside it, `NAME.index`, made by ShardWriter or index_shard(). With an index, a
/// run resumes in mid-epoch without reading archives from their beginning, and the number of samples is known. Several
/// threads may use one object if they may call `decode`. Copies share everything.
class WebDataset {
 public:
  /// Makes a sample's data and target, without the batch dimension. Random numbers must be drawn from `random`, which
  /// depends only on seed, epoch, archive and sample. Several threads call it at the same time.
  using Decode = std::function<Batch(const ShardSample& sample, SampleRandom& random)>;
  class Walk;

  /// Does not open any archive yet. Throws as expand_shards() does, and std::invalid_argument for an empty list, an
  /// empty address or an empty `decode`.
  WebDataset(const std::string& pattern, Decode decode, const WebDatasetOptions& options = {});
  /// The same for a list of addresses, which are not expanded.
  WebDataset(std::vector<std::string> urls, Decode decode, const WebDatasetOptions& options = {});

  /// The archives' addresses.
  const std::vector<std::string>& urls() const;
  /// Number of archives.
  int64_t parts() const;
  /// Walks over an archive. Throws DataError.
  Walk open(int64_t part) const;
  /// Number of samples of an archive: from its index, else counted. Throws DataError.
  int64_t part_size(int64_t part) const;
  /// The samples' data and targets, stacked. Throws what `decode` throws.
  Batch make_batch(std::span<ShardSample> samples, int64_t epoch) const;
  /// How many different samples were left out and archives cut so far, with skip_damaged.
  int64_t skipped() const;

 private:
  struct Shared;
  std::shared_ptr<Shared> shared_;
};

/// Goes over the samples of one archive.
class WebDataset::Walk {
 public:
  ~Walk();
  Walk(Walk&& other) noexcept;
  /// The next sample, or nothing at the end. Throws DataError for damage.
  std::optional<ShardSample> next();
  /// Skips up to `count` samples, and returns how many it skipped.
  int64_t skip(int64_t count);

 private:
  friend class WebDataset;
  struct State;
  explicit Walk(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

/// Writes the index of a local, uncompressed archive beside it, and returns the number of its samples. Throws
/// DataError.
int64_t index_shard(const std::filesystem::path& archive);

/// Settings of a ShardWriter, all optional.
struct ShardWriterOptions {
  int64_t most_samples = 10'000;          ///< of an archive
  int64_t most_bytes = int64_t{1} << 30;  ///< of an archive; one that has a single sample may be larger
};

/// Writes samples into archives PREFIX-000000.tar, PREFIX-000001.tar …, each with its index. An archive gets its final
/// name when it is complete. Not safe for concurrent calls.
///
///     ddp::ShardWriter writer("train");
///     writer.add("0001", {{"jpg", ddp::read_small_file("a.jpg", 1 << 24)}, {"cls", "7"}});
///     writer.close();
class ShardWriter {
 public:
  /// Opens nothing yet. Throws std::invalid_argument for options below 1.
  explicit ShardWriter(std::filesystem::path prefix, const ShardWriterOptions& options = {});
  /// Without an earlier close(), the archive that is being written is deleted.
  ~ShardWriter();
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;

  /// Appends a sample of files by suffix. Throws std::invalid_argument for a key that is empty or the one before, or
  /// has a dot after its last slash or a zero byte, and for suffixes that are empty, repeated, or have a slash or
  /// capitals; DataError when it cannot be written, such as on a full disk: the sample is then not in the archive, but
  /// the samples before it are, and it may be added again.
  void add(const std::string& key, const std::vector<std::pair<std::string, std::string>>& files);
  /// Ends the last archive. Throws DataError.
  void close();
  /// The archives that are whole.
  const std::vector<std::filesystem::path>& archives() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// Writes the pictures of an image folder and their classes into archives: each sample consists of the unchanged file,
/// with its extension in lower case, and the number of its class as .cls. Samples are in the order of the listing, or
/// with a seed in random order. A random order is needed if the buffer of the stream that reads them is smaller than a
/// class. Returns the archives. Throws DataError.
std::vector<std::filesystem::path> write_shards(const ImageListing& listing, const std::filesystem::path& prefix,
                                                std::optional<uint64_t> seed = std::nullopt,
                                                const ShardWriterOptions& options = {});

}  // namespace ddp
