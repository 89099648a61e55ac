#include "data/formats/tiff_file.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"

namespace ddp {
namespace {

/// Fax codecs do not report an error if a strip ends early.
bool is_fax(int compression) {
  return compression == COMPRESSION_CCITTRLE || compression == COMPRESSION_CCITTRLEW ||
         compression == COMPRESSION_CCITTFAX3 || compression == COMPRESSION_CCITTFAX4;
}

/// Whether the codec can decode single rows. Some codecs decompress a whole strip at a time.
bool knows_rows(int compression) {
  switch (compression) {
    case COMPRESSION_OJPEG:
    case COMPRESSION_JBIG:
    case COMPRESSION_LERC:
    case COMPRESSION_WEBP:
      return false;
    default:
      return true;
  }
}

/// Whether the decoder keeps the decompressed data of a strip or tile: the file determines the size of its window.
bool keeps_unpacked(int compression) {
  return compression == COMPRESSION_LZMA || compression == COMPRESSION_ZSTD;
}

/// The time that LZMA needs relative to deflate if all pixels are equal.
constexpr int64_t kLzmaCostFactor = 2;

/// The maximum number of bytes that one byte can be decompressed to; 0 for codecs without such a limit.
int64_t max_ratio(int compression) {
  switch (compression) {
    case COMPRESSION_NONE:
      return 1;
    case COMPRESSION_PACKBITS:
      return 64;
    case COMPRESSION_LZW:
      return 4096;  // a 12-bit code stands for up to 4,094 bytes
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
      return kMaxInflation;
    default:
      return 0;
  }
}

}  // namespace

uint8_t tiff_sample(const uint8_t* samples, int64_t index, int bits) {
  if (bits == 8) return samples[index];
  if (bits == 16) {
    uint16_t value = 0;
    std::memcpy(&value, samples + 2 * index, 2);
    return static_cast<uint8_t>(value >> 8);
  }
  const int64_t bit = index * bits;
  return static_cast<uint8_t>(samples[bit / 8] >> (8 - bits - bit % 8) & ((1 << bits) - 1));
}

tmsize_t TiffFile::read(thandle_t memory, void* to, tmsize_t count) {
  auto& source = *static_cast<Memory*>(memory);
  const uint64_t size = source.bytes->size();
  const uint64_t left = source.at < size ? size - source.at : 0;
  const uint64_t taken = std::min({left, static_cast<uint64_t>(std::max<tmsize_t>(count, 0)), source.may_read});
  source.may_read -= taken;
  if (taken > 0) std::memcpy(to, source.bytes->data() + source.at, taken);
  source.at += taken;
  return static_cast<tmsize_t>(taken);
}

toff_t TiffFile::seek(thandle_t memory, toff_t offset, int from) {
  auto& source = *static_cast<Memory*>(memory);
  const uint64_t begin = from == SEEK_CUR ? source.at : from == SEEK_END ? source.bytes->size() : 0;
  return source.at = begin + offset;
}

int TiffFile::record_error(TIFF* /*tiff*/, void* memory, const char* /*module*/, const char* format,
                           va_list arguments) {
  auto& message = static_cast<Memory*>(memory)->message;
  if (message[0] == '\0') std::vsnprintf(message.data(), message.size(), format, arguments);
  return 1;
}

int TiffFile::ignore_message(TIFF* /*tiff*/, void* /*memory*/, const char* /*module*/, const char* /*format*/,
                             va_list /*arguments*/) {
  return 1;
}

TiffFile::TiffFile(const std::vector<uint8_t>& bytes, const std::filesystem::path& path)
    : path_(path), memory_(std::make_unique<Memory>(Memory{.bytes = &bytes})) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 TIFFOpenOptionsFree);
  if (options == nullptr) throw std::bad_alloc();
  constexpr tmsize_t kAlways = tmsize_t{24} << 20;
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), std::max(kAlways, 24 * static_cast<tmsize_t>(bytes.size())));
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), record_error, memory_.get());
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore_message, memory_.get());
  const auto write = [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; };
  const auto close = [](thandle_t) { return 0; };
  const auto size = [](thandle_t memory) -> toff_t { return static_cast<Memory*>(memory)->bytes->size(); };
  const auto map = [](thandle_t, void**, toff_t*) { return 0; };
  const auto unmap = [](thandle_t, void*, toff_t) {};
  // Limits the bytes that may be read. The directory and the values of its tags are parts of the file. If the value of
  // each tag were the whole file, libtiff would keep that many copies of it.
  constexpr uint64_t kMaxReadFactor = 4;
  memory_->may_read = kMaxReadFactor * bytes.size();
  tiff_.reset(
      TIFFClientOpenExt("picture", "rm", memory_.get(), read, write, seek, close, size, map, unmap, options.get()));
  if (memory_->may_read == 0) {
    memory_->message = {};
    refuse("the values of its tags overlap");
  }
  if (tiff_ == nullptr) refuse("its header is damaged");
  memory_->may_read = std::numeric_limits<uint64_t>::max();
}

void TiffFile::refuse(const std::string& why) const {
  std::string cause = memory_->message[0] == '\0' ? why : why + " (" + memory_->message.data() + ")";
  std::replace_if(
      cause.begin(), cause.end(), [](unsigned char c) { return c < ' '; }, ' ');
  throw DataError(path_, "not a valid TIFF file: " + cause);
}

TiffLayout TiffFile::layout() {
  uint32_t height = 0;
  uint32_t width = 0;
  if (TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &height) == 0 ||
      TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &width) == 0) {
    refuse("it does not say how large it is");
  }
  const auto field = [&](uint32_t tag, int otherwise) -> int {
    uint16_t value = 0;
    return TIFFGetFieldDefaulted(tiff_.get(), tag, &value) == 0 ? otherwise : value;
  };
  uint16_t extra_count = 0;
  uint16_t* extra = nullptr;
  const bool has_extra = TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_EXTRASAMPLES, &extra_count, &extra) != 0;
  return {.height = height,
          .width = width,
          .bits = field(TIFFTAG_BITSPERSAMPLE, 1),
          .samples = field(TIFFTAG_SAMPLESPERPIXEL, 1),
          .photometric = field(TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISWHITE),
          .sample_format = field(TIFFTAG_SAMPLEFORMAT, SAMPLEFORMAT_UINT),
          .compression = field(TIFFTAG_COMPRESSION, COMPRESSION_NONE),
          .orientation = field(TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT),
          .is_separate = field(TIFFTAG_PLANARCONFIG, PLANARCONFIG_CONTIG) == PLANARCONFIG_SEPARATE,
          .is_premultiplied = has_extra && extra_count > 0 && extra[0] == EXTRASAMPLE_ASSOCALPHA};
}

void TiffFile::convert_jpeg_to_rgb() {
  TIFFSetField(tiff_.get(), TIFFTAG_JPEGCOLORMODE, JPEGCOLORMODE_RGB);
}

TiffFile::Chunk TiffFile::chunk(const TiffLayout& layout) {
  uint32_t rows = 0;
  uint32_t columns = 0;
  if (TIFFIsTiled(tiff_.get()) != 0) {
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &rows);
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &columns);
    if (rows == 0 || columns == 0) refuse("tiles without a size");
    return {.rows = rows, .columns = columns, .is_tile = true};
  }
  TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &rows);
  if (rows == 0) refuse("strips without a size");
  return {.rows = std::min<int64_t>(rows, layout.height), .columns = layout.width};
}

int64_t TiffFile::row_bytes(const Chunk& chunk) {
  const uint64_t bytes = chunk.is_tile ? TIFFTileRowSize64(tiff_.get()) : TIFFScanlineSize64(tiff_.get());
  if (bytes == 0 || bytes > uint64_t{std::numeric_limits<int32_t>::max()}) {
    refuse("rows of " + std::to_string(bytes) + " bytes");
  }
  return static_cast<int64_t>(bytes);
}

int64_t TiffFile::chunk_bytes(const Chunk& chunk) {
  const uint64_t bytes =
      chunk.is_tile ? TIFFTileSize64(tiff_.get()) : TIFFVStripSize64(tiff_.get(), static_cast<uint32_t>(chunk.rows));
  if (bytes == 0 || bytes > uint64_t{std::numeric_limits<int64_t>::max()} / 16) {
    refuse("strips or tiles of " + std::to_string(bytes) + " bytes");
  }
  return static_cast<int64_t>(bytes);
}

/// Checks the claims of the header against the size of the file, before memory is allocated and time is spent.
void TiffFile::check_claims(const TiffLayout& layout, const Chunk& chunk, int planes, int64_t working_bytes) {
  const std::string size = std::to_string(chunk.columns) + "x" + std::to_string(chunk.rows) + " pixels of " +
                           std::to_string(layout.samples) + " samples";
  const int64_t kept = keeps_unpacked(layout.compression) ? chunk_bytes(chunk) : 0;
  check_working_memory(path_, working_bytes + kept, file_bytes(), (chunk.is_tile ? "tiles of " : "strips of ") + size);
  const int64_t down = (layout.height + chunk.rows - 1) / chunk.rows;
  const int64_t across = (layout.width + chunk.columns - 1) / chunk.columns;
  const int64_t rows = chunk.is_tile ? down * std::min(chunk.rows, layout.height) : layout.height;
  const int64_t unpacked = rows * across * planes * row_bytes(chunk);
  check_unpacked_size(path_, unpacked, file_bytes(),
                      passes_ * (layout.compression == COMPRESSION_LZMA ? kLzmaCostFactor : 1));
  // Strips may share their bytes, but the limit keeps a small file from being read as a very long one.
  constexpr int64_t kMaxSharing = 16;
  const int64_t count = down * across * planes;
  int64_t stored = 0;
  for (int64_t i = 0; i < count && stored <= kMaxSharing * file_bytes(); ++i) {
    const uint64_t bytes = TIFFGetStrileByteCount(tiff_.get(), static_cast<uint32_t>(i));
    stored += static_cast<int64_t>(std::min(bytes, static_cast<uint64_t>(file_bytes())));
  }
  if (stored > kMaxSharing * file_bytes()) refuse("its strips or tiles would have more than 16 times the file's bytes");
  const int64_t ratio = max_ratio(layout.compression);
  if (ratio > 0 && unpacked / ratio > stored) {
    refuse(std::to_string(stored) + " bytes cannot hold " + std::to_string(layout.width) + "x" +
           std::to_string(layout.height) + " pixels of " + std::to_string(layout.samples) + " samples");
  }
  if (layout.compression == COMPRESSION_JPEG || layout.compression == COMPRESSION_OJPEG) {
    check_jpeg_scans(layout, chunk);
  }
}

/// Checks JPEGs with several scans. These are kept as coefficients of two bytes and scanned up to 100 times, the limit
/// of libtiff. Bytes that only look like a marker make the limits stricter, not looser.
void TiffFile::check_jpeg_scans(const TiffLayout& layout, const Chunk& chunk) {
  const std::vector<uint8_t>& bytes = *memory_->bytes;
  const int together = layout.is_separate ? 1 : layout.samples;
  bool has_several_scans = false;
  bool is_arithmetic = false;
  int64_t scans = 0;  // of all JPEGs in the file
  for (size_t at = 0; at + 5 < bytes.size(); ++at) {
    if (bytes[at] != 0xFF) continue;
    const uint8_t marker = bytes[at + 1];
    scans += marker == 0xDA ? 1 : 0;
    is_arithmetic = is_arithmetic || marker == 0xC9 || marker == 0xCA;
    has_several_scans = has_several_scans || marker == 0xC2 || marker == 0xC6 || marker == 0xCA ||
                        (marker == 0xDA && bytes[at + 4] < together);
  }
  if (has_several_scans) {
    check_working_memory(path_, 2 * chunk.rows * chunk.columns * together, file_bytes(), "JPEGs of several scans");
  }
  if (!has_several_scans && !is_arithmetic) return;
  constexpr int64_t kMaxScans = 100;  // the limit of libtiff for a strip or tile
  constexpr int64_t kCoefficients = 64;
  const int64_t work = layout.height * layout.width * layout.samples / kCoefficients *
                       (has_several_scans ? std::min(scans, kMaxScans) : 1) *
                       (is_arithmetic ? kCoefficients * kCoefficientWork : kRefinementWork);
  if (work <= max_jpeg_work(file_bytes())) return;
  refuse(has_several_scans ? "JPEGs of several scans are not read for a picture of this size"
                           : "JPEGs with arithmetic coding are not read for a picture of this size");
}

void TiffFile::read_rows(const TiffLayout& layout, int used, const std::function<void(const TiffRow&)>& take) {
  Chunk chunk = this->chunk(layout);
  // If a tile extends below the picture, the rows outside of the picture are not decompressed.
  if (chunk.is_tile && knows_rows(layout.compression)) chunk.rows = std::min(chunk.rows, layout.height);
  // Decoding whole strips is faster.
  constexpr int64_t kLargeStrip = int64_t{16} << 20;
  const bool by_row = !chunk.is_tile && knows_rows(layout.compression) && !is_fax(layout.compression) &&
                      chunk_bytes(chunk) > kLargeStrip;
  const int64_t row_bytes = this->row_bytes(chunk);
  const int stored = layout.is_separate ? 1 : layout.samples;  // samples of a pixel that are stored together
  if (row_bytes < (chunk.columns * stored * layout.bits + 7) / 8) {
    refuse("rows of " + std::to_string(row_bytes) + " bytes");
  }
  const int64_t buffer_bytes = by_row ? row_bytes : chunk.rows * row_bytes;
  const int64_t copies = knows_rows(layout.compression) ? 1 : 3;  // including the copies of the codec
  const int planes = layout.is_separate ? used : 1;
  check_claims(layout, chunk, planes, buffer_bytes * copies);
  buffer_.assign(static_cast<size_t>(buffer_bytes), 0);
  for (TiffRow row{.columns = layout.width}; row.plane < planes; ++row.plane) {
    for (row.y = 0; row.y < layout.height; row.y += by_row ? 1 : chunk.rows) {
      if (by_row) {
        const auto plane = static_cast<uint16_t>(row.plane);
        if (TIFFReadScanline(tiff_.get(), buffer_.data(), static_cast<uint32_t>(row.y), plane) != 1) {
          refuse("its pixels are damaged or truncated");
        }
        row.samples = buffer_.data();
        take(row);
        continue;
      }
      for (row.x = 0; row.x < layout.width; row.x += chunk.columns) read_chunk(layout, chunk, row, take);
      row.x = 0;
    }
  }
}

void TiffFile::read_chunk(const TiffLayout& layout, const Chunk& chunk, const TiffRow& corner,
                          const std::function<void(const TiffRow&)>& take) {
  const int64_t rows = std::min(chunk.rows, layout.height - corner.y);
  const int64_t row_bytes = this->row_bytes(chunk);
  const auto expected = static_cast<tmsize_t>((chunk.is_tile ? chunk.rows : rows) * row_bytes);
  const auto y = static_cast<uint32_t>(corner.y);
  const auto plane = static_cast<uint16_t>(corner.plane);
  const tmsize_t got =
      chunk.is_tile
          ? TIFFReadEncodedTile(tiff_.get(), TIFFComputeTile(tiff_.get(), static_cast<uint32_t>(corner.x), y, 0, plane),
                                buffer_.data(), expected)
          : TIFFReadEncodedStrip(tiff_.get(), TIFFComputeStrip(tiff_.get(), y, plane), buffer_.data(), expected);
  if (got < expected) refuse("its pixels are damaged or truncated");
  TiffRow row = corner;
  row.columns = std::min(chunk.columns, layout.width - corner.x);
  for (int64_t i = 0; i < rows; ++i, ++row.y) {
    row.samples = buffer_.data() + i * row_bytes;
    take(row);
  }
}

void TiffFile::read_rgba(const TiffLayout& layout, const std::function<void(const TiffRow&)>& take) {
  constexpr int64_t kAtOnce = int64_t{1} << 20;  // pixels
  const Chunk chunk = this->chunk(layout);
  const int64_t band = std::min(layout.height, chunk.rows * std::max<int64_t>(1, kAtOnce / layout.width / chunk.rows));
  const int planes = layout.is_separate ? layout.samples : 1;
  check_claims(layout, chunk, planes,
               chunk_bytes(chunk) * std::min(planes, 4) + 4 * band * layout.width +
                   (chunk.is_tile ? 4 * chunk.rows * chunk.columns : 0));
  TIFFSetField(tiff_.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);  // keeps libtiff from rotating the picture
  std::array<char, 1024> why{};
  TIFFRGBAImage image{};
  if (TIFFRGBAImageOK(tiff_.get(), why.data()) == 0 || TIFFRGBAImageBegin(&image, tiff_.get(), 1, why.data()) == 0) {
    refuse(std::string("its pixels are of an unknown kind: ") + why.data());
  }
  const std::unique_ptr<TIFFRGBAImage, decltype(&TIFFRGBAImageEnd)> end(&image, TIFFRGBAImageEnd);
  image.req_orientation = ORIENTATION_TOPLEFT;
  std::vector<uint32_t> raster(static_cast<size_t>(band * layout.width));
  std::vector<uint8_t> rgba(static_cast<size_t>(4 * layout.width));
  for (int64_t begin = 0; begin < layout.height; begin += band) {
    const int64_t rows = std::min(band, layout.height - begin);
    image.row_offset = static_cast<int>(begin);
    if (TIFFRGBAImageGet(&image, raster.data(), static_cast<uint32_t>(layout.width), static_cast<uint32_t>(rows)) ==
        0) {
      refuse("its pixels are damaged, truncated or of an unknown kind");
    }
    for (int64_t y = 0; y < rows; ++y) {
      for (int64_t x = 0; x < layout.width; ++x) {
        const uint32_t pixel = raster[static_cast<size_t>(y * layout.width + x)];
        uint8_t* out = &rgba[static_cast<size_t>(4 * x)];
        out[0] = TIFFGetR(pixel);
        out[1] = TIFFGetG(pixel);
        out[2] = TIFFGetB(pixel);
      }
      take({.y = begin + y, .columns = layout.width, .samples = rgba.data()});
    }
  }
}

std::vector<std::array<uint8_t, 3>> TiffFile::palette(const TiffLayout& layout) {
  std::array<uint16_t*, 3> colors{};
  if (TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &colors[0], &colors[1], &colors[2]) == 0) refuse("no palette");
  std::vector<std::array<uint8_t, 3>> all(size_t{1} << layout.bits);
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t c = 0; c < 3; ++c) all[i][c] = static_cast<uint8_t>(colors[c][i] >> 8);
  }
  return all;
}

}  // namespace ddp
