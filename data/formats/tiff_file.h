// A TIFF file in memory, opened with libtiff: what its first picture is, and its samples. No LibTorch.
#pragma once

#include <tiffio.h>

#include <array>
#include <cstdint>
#include <filesystem>
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
  bool is_premultiplied = false;  ///< the first sample behind the colours is an opacity that they were multiplied with
};

/// Refers to the bytes, which must outlive it. Every failure is a DataError that names the path.
class TiffFile {
 public:
  /// libtiff takes no more than `most_bytes` at once.
  TiffFile(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, int64_t most_bytes);
  ~TiffFile() = default;
  TiffFile(const TiffFile&) = delete;
  TiffFile& operator=(const TiffFile&) = delete;

  TiffLayout layout();

  /// From now on a JPEG's YCbCr comes as RGB.
  void convert_jpeg_to_rgb();

  /// The first `used` samples of each pixel in memory order (height, width, used): 16 bits cut to 8, fewer as they are.
  std::vector<uint8_t> read_samples(const TiffLayout& layout, int used);

  /// RGB by libtiff's own conversion, in memory order (height, width, 3).
  std::vector<uint8_t> read_rgb(const TiffLayout& layout);

  /// Red, green and blue of 2^bits colours.
  std::vector<std::array<uint8_t, 3>> palette(const TiffLayout& layout);

  [[noreturn]] void refuse(const std::string& why) const;

 private:
  struct Memory {
    const std::vector<uint8_t>* bytes;
    uint64_t at = 0;
    std::array<char, 256> message{};  // libtiff's first complaint
  };
  struct Close {
    void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  };
  struct Chunk {
    uint32_t x = 0, y = 0, rows = 0, columns = 0;
    uint16_t plane = 0;
  };

  static tmsize_t read(thandle_t memory, void* to, tmsize_t count);
  static toff_t seek(thandle_t memory, toff_t offset, int from);
  static int complain(TIFF* tiff, void* memory, const char* module, const char* format, va_list arguments);
  static int ignore(TIFF* tiff, void* memory, const char* module, const char* format, va_list arguments);

  void read_chunk(const TiffLayout& layout, const Chunk& chunk, int used, std::vector<uint8_t>& samples);

  std::filesystem::path path_;
  std::unique_ptr<Memory> memory_;
  std::unique_ptr<TIFF, Close> tiff_;
  std::vector<uint8_t> buffer_;
};

}  // namespace ddp
