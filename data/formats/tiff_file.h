// A TIFF file in memory, opened with libtiff: the layout of its first picture, and its samples. Does not use LibTorch.
#pragma once

#include <tiffio.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ddp {

struct TiffLayout {
  int64_t height = 0;
  int64_t width = 0;
  int bits = 1;                   ///< per sample
  int samples = 1;                ///< per pixel
  int photometric = 0;            ///< PHOTOMETRIC_… of libtiff
  int sample_format = 1;          ///< SAMPLEFORMAT_… of libtiff
  int compression = 1;            ///< COMPRESSION_… of libtiff
  int orientation = 1;            ///< as in EXIF: 1 to 8
  bool is_separate = false;       ///< each colour has separate strips or tiles
  bool is_premultiplied = false;  ///< the colours were multiplied with the first sample after them, the opacity
};

/// Consecutive pixels of one row, beginning at column `x`.
struct TiffRow {
  int64_t y = 0;
  int64_t x = 0;
  int64_t columns = 0;
  int plane = 0;                     ///< the index of the sample, if each colour is stored separately
  const uint8_t* samples = nullptr;  ///< as in the file, but 16-bit samples are in the byte order of this machine
};

/// Returns sample `index` of `samples`: 16-bit values truncated to 8 bits, values of fewer than 8 bits unchanged.
uint8_t tiff_sample(const uint8_t* samples, int64_t index, int bits);

/// Refers to the bytes, which must outlive this object. Every failure is a DataError that names the path.
class TiffFile {
 public:
  TiffFile(const std::vector<uint8_t>& bytes, const std::filesystem::path& path);
  ~TiffFile() = default;
  TiffFile(const TiffFile&) = delete;
  TiffFile& operator=(const TiffFile&) = delete;

  int64_t file_bytes() const { return static_cast<int64_t>(memory_->bytes->size()); }

  TiffLayout layout();

  /// From now on the pixels of a JPEG in YCbCr are converted to RGB.
  void convert_jpeg_to_rgb();

  /// The rows and columns of a strip or tile.
  struct Chunk {
    int64_t rows = 0;
    int64_t columns = 0;
    bool is_tile = false;
  };
  Chunk chunk(const TiffLayout& layout);

  /// Sets how many times all pixels are read (by default once). The limit on work takes it into account.
  void set_passes(int passes) { passes_ = passes; }

  /// Passes each row to `take`, in pieces if the file has tiles: either all samples of each pixel, or the first `used`
  /// planes one after the other. Allocates memory for a row, a tile, or a strip if the codec cannot decode single rows.
  void read_rows(const TiffLayout& layout, int used, const std::function<void(const TiffRow&)>& take);

  /// The same with four bytes per pixel (red, green, blue and opacity), using the conversion of libtiff.
  void read_rgba(const TiffLayout& layout, const std::function<void(const TiffRow&)>& take);

  /// Returns red, green and blue of 2^bits colours.
  std::vector<std::array<uint8_t, 3>> palette(const TiffLayout& layout);

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  struct Memory {
    const std::vector<uint8_t>* bytes;
    uint64_t at = 0;
    uint64_t may_read = 0;            // further bytes that may be read
    std::array<char, 256> message{};  // the first error message of libtiff
  };
  struct Close {
    void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  };
  static tmsize_t read(thandle_t memory, void* to, tmsize_t count);
  static toff_t seek(thandle_t memory, toff_t offset, int from);
  static int record_error(TIFF* tiff, void* memory, const char* module, const char* format, va_list arguments);
  static int ignore_message(TIFF* tiff, void* memory, const char* module, const char* format, va_list arguments);

  int64_t row_bytes(const Chunk& chunk);
  int64_t chunk_bytes(const Chunk& chunk);
  void check_claims(const TiffLayout& layout, const Chunk& chunk, int planes, int64_t working_bytes);
  void check_jpeg_scans(const TiffLayout& layout, const Chunk& chunk);
  void read_chunk(const TiffLayout& layout, const Chunk& chunk, const TiffRow& corner,
                  const std::function<void(const TiffRow&)>& take);

  std::filesystem::path path_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<TIFF, Close> tiff_;
  std::vector<uint8_t> buffer_;
  int passes_ = 1;
};

}  // namespace ddp
