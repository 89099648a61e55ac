// A TIFF file in memory, opened with libtiff: the layout of its first picture, and its samples. No LibTorch.
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
  int bits = 1;                   ///< of a sample
  int samples = 1;                ///< of a pixel
  int photometric = 0;            ///< libtiff's PHOTOMETRIC_…
  int sample_format = 1;          ///< libtiff's SAMPLEFORMAT_…
  int compression = 1;            ///< libtiff's COMPRESSION_…
  int orientation = 1;            ///< as in EXIF: 1 to 8
  bool is_separate = false;       ///< each colour in strips or tiles of its own
  bool is_premultiplied = false;  ///< the first sample after the colours is an opacity that they were multiplied with
};

/// Pixels of one row that stand side by side, from column `x` on.
struct TiffRow {
  int64_t y = 0;
  int64_t x = 0;
  int64_t columns = 0;
  int plane = 0;                     ///< which sample, where each colour stands by itself
  const uint8_t* samples = nullptr;  ///< as the file has them, 16 bits in this machine's order
};

/// Sample `index` of those at `samples`: 16 bits cut to 8, fewer than 8 as they are.
uint8_t tiff_sample(const uint8_t* samples, int64_t index, int bits);

/// Refers to the bytes, which must outlive it. Every failure is a DataError that names the path.
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

  /// Rows and columns of a strip or tile.
  struct Chunk {
    int64_t rows = 0;
    int64_t columns = 0;
    bool is_tile = false;
  };
  Chunk chunk(const TiffLayout& layout);

  /// How many times all pixels are read, which counts for the limit on work; 1 by default.
  void set_passes(int passes) { passes_ = passes; }

  /// Passes each row to `take`, in pieces if the file has tiles: either all samples of each pixel, or the first `used`
  /// planes one after the other. Allocates memory for a row, a tile, or a strip of a codec that cannot decode single
  /// rows.
  void read_rows(const TiffLayout& layout, int used, const std::function<void(const TiffRow&)>& take);

  /// The same with four bytes for a pixel, red, green, blue and opacity, by libtiff's own conversion.
  void read_rgba(const TiffLayout& layout, const std::function<void(const TiffRow&)>& take);

  /// Red, green and blue of 2^bits colours.
  std::vector<std::array<uint8_t, 3>> palette(const TiffLayout& layout);

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  struct Memory {
    const std::vector<uint8_t>* bytes;
    uint64_t at = 0;
    uint64_t may_read = 0;            // further bytes that may be read
    std::array<char, 256> message{};  // libtiff's first complaint
  };
  struct Close {
    void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  };
  static tmsize_t read(thandle_t memory, void* to, tmsize_t count);
  static toff_t seek(thandle_t memory, toff_t offset, int from);
  static int complain(TIFF* tiff, void* memory, const char* module, const char* format, va_list arguments);
  static int ignore(TIFF* tiff, void* memory, const char* module, const char* format, va_list arguments);

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
