#include "data/formats/tiff_file.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <limits>

#include <ddprun/data/error.h>

namespace ddp {
namespace {

/// A tile may be larger than the picture, but not absurdly.
uint64_t most_chunk_bytes(const TiffLayout& layout) {
  constexpr uint64_t kAlways = uint64_t{1} << 24;
  const auto pixels = static_cast<uint64_t>(layout.height * layout.width);
  return std::max(kAlways, 16 * pixels * static_cast<uint64_t>(layout.samples * (layout.bits + 7) / 8));
}

uint8_t sample_at(const uint8_t* row, uint64_t index, int bits) {
  if (bits == 8) return row[index];
  if (bits == 16) {
    uint16_t value = 0;  // in this machine's order
    std::memcpy(&value, row + 2 * index, 2);
    return static_cast<uint8_t>(value >> 8);
  }
  const uint64_t bit = index * static_cast<uint64_t>(bits);
  return static_cast<uint8_t>(row[bit / 8] >> (8 - static_cast<uint64_t>(bits) - bit % 8) & ((1U << bits) - 1));
}

}  // namespace

tmsize_t TiffFile::read(thandle_t memory, void* to, tmsize_t count) {
  auto& source = *static_cast<Memory*>(memory);
  const uint64_t size = source.bytes->size();
  const uint64_t left = source.at < size ? size - source.at : 0;
  const uint64_t taken = std::min(left, static_cast<uint64_t>(std::max<tmsize_t>(count, 0)));
  if (taken > 0) std::memcpy(to, source.bytes->data() + source.at, taken);
  source.at += taken;
  return static_cast<tmsize_t>(taken);
}

toff_t TiffFile::seek(thandle_t memory, toff_t offset, int from) {
  auto& source = *static_cast<Memory*>(memory);
  const uint64_t begin = from == SEEK_CUR ? source.at : from == SEEK_END ? source.bytes->size() : 0;
  return source.at = begin + offset;
}

int TiffFile::complain(TIFF* /*tiff*/, void* memory, const char* /*module*/, const char* format, va_list arguments) {
  auto& message = static_cast<Memory*>(memory)->message;
  if (message[0] == '\0') std::vsnprintf(message.data(), message.size(), format, arguments);
  return 1;
}

int TiffFile::ignore(TIFF* /*tiff*/, void* /*memory*/, const char* /*module*/, const char* /*format*/,
                     va_list /*arguments*/) {
  return 1;
}

TiffFile::TiffFile(const std::vector<uint8_t>& bytes, const std::filesystem::path& path, int64_t most_bytes)
    : path_(path), memory_(std::make_unique<Memory>(Memory{.bytes = &bytes})) {
  const std::unique_ptr<TIFFOpenOptions, decltype(&TIFFOpenOptionsFree)> options(TIFFOpenOptionsAlloc(),
                                                                                 TIFFOpenOptionsFree);
  if (options == nullptr) throw std::bad_alloc();
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), most_bytes);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), complain, memory_.get());
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore, memory_.get());
  const auto write = [](thandle_t, void*, tmsize_t) -> tmsize_t { return 0; };
  const auto close = [](thandle_t) { return 0; };
  const auto size = [](thandle_t memory) -> toff_t { return static_cast<Memory*>(memory)->bytes->size(); };
  const auto map = [](thandle_t, void**, toff_t*) { return 0; };
  const auto unmap = [](thandle_t, void*, toff_t) {};
  tiff_.reset(
      TIFFClientOpenExt("picture", "rm", memory_.get(), read, write, seek, close, size, map, unmap, options.get()));
  if (tiff_ == nullptr) refuse("its header is damaged");
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

std::vector<uint8_t> TiffFile::read_samples(const TiffLayout& layout, int used) {
  Chunk chunk;
  const bool is_tiled = TIFFIsTiled(tiff_.get()) != 0;
  if (is_tiled) {
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &chunk.rows);
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &chunk.columns);
  } else {
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &chunk.rows);
    chunk.rows = std::min(chunk.rows, static_cast<uint32_t>(layout.height));
    chunk.columns = static_cast<uint32_t>(layout.width);
  }
  const uint64_t bytes = is_tiled ? TIFFTileSize64(tiff_.get()) : TIFFVStripSize64(tiff_.get(), chunk.rows);
  if (chunk.rows == 0 || chunk.columns == 0 || bytes == 0) refuse("strips or tiles without a size");
  if (bytes > most_chunk_bytes(layout)) refuse("strips or tiles of " + std::to_string(bytes) + " bytes");
  buffer_.resize(bytes);
  std::vector<uint8_t> samples(static_cast<size_t>(layout.height * layout.width * used));
  const int planes = layout.is_separate ? used : 1;
  for (int plane = 0; plane < planes; ++plane) {
    chunk.plane = static_cast<uint16_t>(plane);
    for (int64_t y = 0; y < layout.height; y += chunk.rows) {
      for (int64_t x = 0; x < layout.width; x += chunk.columns) {
        chunk.y = static_cast<uint32_t>(y);
        chunk.x = static_cast<uint32_t>(x);
        read_chunk(layout, chunk, used, samples);
      }
    }
  }
  return samples;
}

void TiffFile::read_chunk(const TiffLayout& layout, const Chunk& chunk, int used, std::vector<uint8_t>& samples) {
  const bool is_tiled = TIFFIsTiled(tiff_.get()) != 0;
  const int64_t rows = std::min<int64_t>(chunk.rows, layout.height - chunk.y);
  const int64_t columns = std::min<int64_t>(chunk.columns, layout.width - chunk.x);
  const int stored = layout.is_separate ? 1 : layout.samples;  // samples of a pixel that stand together
  const int first = layout.is_separate ? chunk.plane : 0;
  const int count = layout.is_separate ? 1 : used;
  const auto row_bytes =
      static_cast<int64_t>(is_tiled ? TIFFTileRowSize64(tiff_.get()) : TIFFScanlineSize64(tiff_.get()));
  const auto expected = is_tiled ? static_cast<tmsize_t>(buffer_.size()) : static_cast<tmsize_t>(rows * row_bytes);
  if (row_bytes < (columns * stored * layout.bits + 7) / 8 || rows * row_bytes > static_cast<int64_t>(buffer_.size())) {
    refuse("rows of " + std::to_string(row_bytes) + " bytes");
  }
  const tmsize_t got =
      is_tiled ? TIFFReadEncodedTile(tiff_.get(), TIFFComputeTile(tiff_.get(), chunk.x, chunk.y, 0, chunk.plane),
                                     buffer_.data(), expected)
               : TIFFReadEncodedStrip(tiff_.get(), TIFFComputeStrip(tiff_.get(), chunk.y, chunk.plane), buffer_.data(),
                                      expected);
  if (got < expected) refuse("its pixels are damaged or cut short");
  for (int64_t y = 0; y < rows; ++y) {
    const uint8_t* row = buffer_.data() + y * row_bytes;
    uint8_t* out = samples.data() + ((chunk.y + y) * layout.width + chunk.x) * used + first;
    for (int64_t x = 0; x < columns; ++x, out += used) {
      for (int c = 0; c < count; ++c) out[c] = sample_at(row, static_cast<uint64_t>(x * stored + c), layout.bits);
    }
  }
}

std::vector<uint8_t> TiffFile::read_rgb(const TiffLayout& layout) {
  TIFFSetField(tiff_.get(), TIFFTAG_ORIENTATION, ORIENTATION_TOPLEFT);  // so that libtiff turns nothing
  const auto pixels = static_cast<size_t>(layout.height * layout.width);
  std::vector<uint32_t> raster(pixels);
  if (TIFFReadRGBAImageOriented(tiff_.get(), static_cast<uint32_t>(layout.width), static_cast<uint32_t>(layout.height),
                                raster.data(), ORIENTATION_TOPLEFT,
                                /*stop_on_error=*/1) == 0) {
    refuse("its pixels are damaged, cut short or of an unknown kind");
  }
  std::vector<uint8_t> rgb(3 * pixels);
  for (size_t i = 0; i < pixels; ++i) {
    rgb[3 * i] = TIFFGetR(raster[i]);
    rgb[3 * i + 1] = TIFFGetG(raster[i]);
    rgb[3 * i + 2] = TIFFGetB(raster[i]);
  }
  return rgb;
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
