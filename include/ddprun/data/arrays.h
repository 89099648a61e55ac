// Arrays in files: NumPy's .npy and .npz, and files of tokens, mapped into memory on request; and pictures whose
// samples do not have 8 bits.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ddprun/data/batch.h>
#include <ddprun/data/image.h>

namespace ddp {

/// Reads an array that numpy.save has written: the tensor of torch.from_numpy(numpy.load(file)), with its dtype, shape
/// and strides, so an array in Fortran's order gives a tensor whose first dimension is the fastest. The dtypes are
/// bool, whole numbers of 8 to 64 bits, signed or not, floats of 16, 32 and 64 bits, and complex numbers of 64 and 128.
/// Big-endian elements are converted. A file may be gzip-compressed. Throws DataError, one line that names the file,
/// for pickled objects, texts, dates and structures, and for a file that is truncated or damaged; nothing in a file is
/// executed.
at::Tensor load_npy(const std::filesystem::path& file);

/// The same array without reading it: pages of the file are read when they are touched, and writing to the tensor does
/// not change the file (NumPy's mmap_mode="c"). The file must not be made shorter while the tensor lives. Throws
/// DataError as load_npy(), and for big-endian elements and compressed files.
at::Tensor map_npy(const std::filesystem::path& file);

/// Writes the bytes that numpy.save(file, tensor.numpy()) writes; a tensor on a device is copied to the host first. An
/// older file is kept until the new one is complete. Throws std::invalid_argument for a tensor that is not dense or
/// whose dtype NumPy lacks, such as bfloat16, and DataError when the file cannot be written.
void save_npy(const std::filesystem::path& file, const at::Tensor& tensor);

/// The arrays of a .npz file. An array is read when at() or map() is called. Several threads may use one object. Copies
/// share the file.
///
///     const ddp::NpzFile data("train.npz");
///     ddp::TensorDataset train(data.at("x"), data.at("y"));
class NpzFile {
 public:
  /// Reads the list of arrays. Members that are not arrays (whose names do not end in .npy) are left out. Throws
  /// DataError for another kind of file, a damaged one, and members that are encrypted or packed in another way than
  /// numpy.savez and numpy.savez_compressed do.
  explicit NpzFile(const std::filesystem::path& file);

  /// Names of the arrays, sorted, without ".npy".
  const std::vector<std::string>& names() const;
  /// Whether it has an array of that name.
  bool contains(const std::string& name) const;
  /// Reads this array into new memory, as load_npy() does, and verifies its checksum. Throws std::out_of_range for
  /// another name, and DataError.
  at::Tensor at(const std::string& name) const;
  /// Maps this array, as map_npy() does. The array must be stored without compression, as numpy.savez does, and its
  /// elements must be at multiples of their size. The checksum is not verified. Throws std::out_of_range for another
  /// name, and DataError.
  at::Tensor map(const std::string& name) const;

 private:
  struct Content;
  std::shared_ptr<const Content> content_;
};

/// All arrays of a .npz file, in memory. Throws DataError.
std::map<std::string, at::Tensor> load_npz(const std::filesystem::path& file);

/// Writes a file that numpy.load reads, as numpy.savez does, or numpy.savez_compressed with `compressed`. The same
/// tensors give the same bytes. Throws as save_npy(), and std::invalid_argument for a name that is empty or longer than
/// 65,000 bytes.
void save_npz(const std::filesystem::path& file, const std::map<std::string, at::Tensor>& tensors,
              bool compressed = false);

/// Reads a PNG or TIFF file with unchanged samples, for pictures that 8-bit RGB cannot represent. Returns (C, H, W) on
/// the CPU. PNG: uint8 or uint16, as torchvision.io.decode_image(mode=ImageReadMode.UNCHANGED) returns it: grey of
/// fewer than 8 bits is scaled to 8 bits, a picture with a palette (such as a mask of classes) gives the palette's
/// indices, and opacity is a channel. TIFF, where this build has libtiff: the first picture's samples, unscaled, with
/// its rows as they are stored: uint8 for 1 to 8 bits, uint16 for 9 to 16 (such as 12), int8, int16, integers of 32 and
/// 64 bits, float32 (also for floats of 16 bits) and float64. Throws DataError, one line that names the file, for
/// another format, YCbCr, a file that is damaged, and too many pixels.
at::Tensor load_raster(const std::filesystem::path& file, const DecodeOptions& options = {});

/// The type of the numbers in a file of tokens.
enum class TokenType { kUint16, kUint32 };

/// Settings of Tokens.
struct TokensOptions {
  int64_t length = 1024;                ///< tokens of a sample
  int64_t stride = 0;                   ///< tokens from one sample's beginning to the next one's; 0: `length`
  TokenType type = TokenType::kUint16;  ///< of a flat file; an .idx file contains its type
  bool cross_documents = true;  ///< whether a sample may begin in one document and end in another; if false, the
                                ///< remaining tokens at the end of a document are not used
  std::optional<int64_t> document_end{};  ///< of a flat file: the token that ends each document, such as GPT-2's 50256
  int64_t vocabulary = 0;                 ///< tokens are 0 … vocabulary-1; 0: not checked
};

/// Windows of a file of tokens, which is mapped into memory. Sample i consists of the `length` tokens from i * stride
/// on; its target has the token that follows each of these. Tokens at the end that do not fill a window are not used.
/// Several threads may use one object. Copies share the file, which must not become shorter while it is in use.
///
///     ddp::Tokens train("train.bin", {.length = 1024, .vocabulary = 50257});
///     ddp::DistributedSampler sampler(train.size(), group);
///     ddp::DeviceLoader loader(train, sampler, group.device(), {.batch_size = 12, .workers = 1});
class Tokens {
 public:
  /// A flat file of little-endian numbers, as nanoGPT's prepare.py writes; or Megatron-LM's pair of PREFIX.bin and
  /// PREFIX.idx, for a `file` that ends in .idx, whose documents and dtype (uint8, int8, int16, int32, int64 or uint16)
  /// it then has. A flat file is read completely once if `document_end` is needed. Throws std::invalid_argument for
  /// options out of range, DataError for a file that is damaged or has no window.
  explicit Tokens(const std::filesystem::path& file, const TokensOptions& options = {});

  /// Number of samples.
  int64_t size() const;
  /// Number of tokens in the file.
  int64_t tokens() const;
  /// Number of documents; 1 if it is not known where documents end.
  int64_t documents() const;

  /// These samples: data and target int64 (B, length). Throws std::out_of_range, and DataError for a token that is
  /// negative or not below `vocabulary`.
  Batch get_batch(std::span<const int64_t> indices) const;

 private:
  struct File;
  std::shared_ptr<const File> file_;
};

}  // namespace ddp
