#include <openjpeg.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "data/formats/picture_formats.h"

namespace ddp {
namespace {

struct Source {
  const std::vector<uint8_t>& bytes;
  size_t at = 0;
  std::string message{};  // the first error message of OpenJPEG
};

OPJ_SIZE_T read(void* to, OPJ_SIZE_T count, void* user) {
  auto& source = *static_cast<Source*>(user);
  const size_t taken = std::min<size_t>(count, source.bytes.size() - source.at);
  if (taken == 0) return static_cast<OPJ_SIZE_T>(-1);
  std::memcpy(to, source.bytes.data() + source.at, taken);
  source.at += taken;
  return taken;
}

OPJ_OFF_T skip(OPJ_OFF_T count, void* user) {
  auto& source = *static_cast<Source*>(user);
  const auto left = static_cast<OPJ_OFF_T>(source.bytes.size() - source.at);
  if (count < 0) return -1;
  const OPJ_OFF_T taken = std::min(count, left);
  source.at += static_cast<size_t>(taken);
  return taken;
}

OPJ_BOOL seek(OPJ_OFF_T place, void* user) {
  auto& source = *static_cast<Source*>(user);
  if (place < 0 || static_cast<size_t>(place) > source.bytes.size()) return OPJ_FALSE;
  source.at = static_cast<size_t>(place);
  return OPJ_TRUE;
}

void record_error(const char* message, void* user) {
  auto& text = static_cast<Source*>(user)->message;
  if (!text.empty()) return;
  text = message;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::ranges::replace_if(
      text, [](unsigned char c) { return c < ' '; }, ' ');
}

void ignore_message(const char* /*message*/, void* /*user*/) {}

/// Converts a sample of a component to 8 bits, rounded as in Pillow.
uint8_t byte_of(const opj_image_comp_t& component, int64_t y, int64_t x) {
  const int64_t row = std::min<int64_t>(y / component.dy, component.h - 1);
  const int64_t column = std::min<int64_t>(x / component.dx, component.w - 1);
  const int shift = 8 - static_cast<int>(component.prec);
  int64_t value = component.data[row * component.w + column];
  if (component.sgnd != 0) value += int64_t{1} << (component.prec - 1);
  value = shift < 0 ? (value + (int64_t{1} << (-shift - 1))) >> -shift : value << shift;
  return static_cast<uint8_t>(std::clamp<int64_t>(value, 0, 255));
}

/// Converts YCbCr to RGB according to JFIF.
std::array<uint8_t, 3> from_ycc(uint8_t y, uint8_t cb, uint8_t cr) {
  const double blue = cb - 128, red = cr - 128;
  const auto byte = [](double value) { return static_cast<uint8_t>(std::clamp(value + 0.5, 0.0, 255.0)); };
  return {byte(y + 1.402 * red), byte(y - 0.344136 * blue - 0.714136 * red), byte(y + 1.772 * blue)};
}

/// Limits the number of tiles, because OpenJPEG allocates kilobytes for each tile that a header declares before their
/// number can be checked. Bytes that only look like such a header make the limit stricter, not looser.
void check_tiles(const std::vector<uint8_t>& bytes, const std::filesystem::path& path) {
  constexpr std::array<uint8_t, 4> kBegin = {0xFF, 0x4F, 0xFF, 0x51};
  constexpr size_t kHeader = 4 + 38;
  for (auto at = bytes.begin();; ++at) {
    at = std::search(at, bytes.end(), kBegin.begin(), kBegin.end());
    if (bytes.end() - at < static_cast<std::ptrdiff_t>(kHeader)) return;
    const auto number = [&](size_t place, size_t size) {
      int64_t value = 0;
      for (size_t i = 0; i < size; ++i) value = value << 8 | at[static_cast<std::ptrdiff_t>(place + i)];
      return value;
    };
    const auto tiles = [&](size_t end, size_t size, size_t begin) {
      const int64_t length = number(end, 4) - number(begin, 4);
      return length <= 0 || number(size, 4) == 0 ? 0 : (length - 1) / number(size, 4) + 1;
    };
    constexpr double kBytesPerTile = 6000, kBytesPerComponent = 1200;
    const double all = static_cast<double>(tiles(8, 24, 32)) * static_cast<double>(tiles(12, 28, 36));
    const double needed = all * (kBytesPerTile + kBytesPerComponent * static_cast<double>(number(40, 2)));
    constexpr double kMax = 1e15;
    check_working_memory(path, static_cast<int64_t>(std::min(needed, kMax)), static_cast<int64_t>(bytes.size()),
                         "its tiles");
  }
}

using Picture = std::unique_ptr<opj_image_t, decltype(&opj_image_destroy)>;

/// Checks the size and the components of the picture against the size of the file, before it is decoded.
Image checked(const opj_image_t& picture, const Source& source, const std::filesystem::path& path,
              const DecodeOptions& options) {
  Image image{.height = int64_t{picture.y1} - picture.y0, .width = int64_t{picture.x1} - picture.x0};
  check_image_size(path, image.height, image.width, options);
  int64_t samples = 0;
  for (OPJ_UINT32 i = 0; i < picture.numcomps; ++i) {
    const opj_image_comp_t& component = picture.comps[i];
    if (component.w < 1 || component.h < 1 || component.dx < 1 || component.dy < 1 || component.prec < 1 ||
        component.prec > 31) {
      throw DataError(path, "not a valid JPEG 2000 file: a component without samples, or of more than 31 bits");
    }
    samples += int64_t{component.w} * component.h;
  }
  const auto file_bytes = static_cast<int64_t>(source.bytes.size());
  const int64_t bytes = samples * static_cast<int64_t>(sizeof(OPJ_INT32));
  check_unpacked_size(path, bytes, file_bytes);
  check_working_memory(path, bytes - image.height * image.width * 3, file_bytes, "the samples of the picture");
  return image;
}

void fill(const opj_image_t& picture, const std::filesystem::path& path, Image& image) {
  const OPJ_UINT32 colors = picture.numcomps < 3 ? 1 : 3;  // the other components are opacity
  for (OPJ_UINT32 i = 0; i < colors; ++i) {
    if (picture.comps[i].data == nullptr) throw DataError(path, "not a valid JPEG 2000 file: its samples are missing");
  }
  const bool is_ycc = colors == 3 && picture.color_space == OPJ_CLRSPC_SYCC;
  image.pixels.resize(static_cast<size_t>(image.height * image.width * 3));
  uint8_t* rgb = image.pixels.data();
  for (int64_t y = 0; y < image.height; ++y) {
    for (int64_t x = 0; x < image.width; ++x, rgb += 3) {
      for (OPJ_UINT32 c = 0; c < 3; ++c) rgb[c] = byte_of(picture.comps[colors == 1 ? 0 : c], y, x);
      if (is_ycc) std::ranges::copy(from_ycc(rgb[0], rgb[1], rgb[2]), rgb);
    }
  }
}

}  // namespace

Image decode_jpeg2000(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                      const DecodeOptions& options) {
  check_tiles(bytes, path);
  Source source{.bytes = bytes};
  const auto refuse = [&](const std::string& why) {
    throw DataError(path, "not a valid JPEG 2000 file: " + (source.message.empty() ? why : source.message));
  };
  const bool is_stream = bytes.size() >= 2 && bytes[0] == 0xFF && bytes[1] == 0x4F;
  const std::unique_ptr<opj_codec_t, decltype(&opj_destroy_codec)> codec(
      opj_create_decompress(is_stream ? OPJ_CODEC_J2K : OPJ_CODEC_JP2), opj_destroy_codec);
  const std::unique_ptr<opj_stream_t, decltype(&opj_stream_destroy)> stream(opj_stream_default_create(OPJ_TRUE),
                                                                            opj_stream_destroy);
  if (codec == nullptr || stream == nullptr) throw std::bad_alloc();
  opj_set_error_handler(codec.get(), record_error, &source);
  opj_set_warning_handler(codec.get(), ignore_message, nullptr);
  opj_set_info_handler(codec.get(), ignore_message, nullptr);
  opj_stream_set_user_data(stream.get(), &source, nullptr);
  opj_stream_set_user_data_length(stream.get(), bytes.size());
  opj_stream_set_read_function(stream.get(), read);
  opj_stream_set_skip_function(stream.get(), skip);
  opj_stream_set_seek_function(stream.get(), seek);
  opj_dparameters_t parameters{};
  opj_set_default_decoder_parameters(&parameters);
  if (opj_setup_decoder(codec.get(), &parameters) == OPJ_FALSE) refuse("it cannot be decoded");
  opj_image_t* header = nullptr;
  const bool has_header = opj_read_header(stream.get(), codec.get(), &header) != OPJ_FALSE;
  const Picture picture(header, opj_image_destroy);
  if (!has_header || picture == nullptr || picture->numcomps < 1) refuse("its header is damaged or truncated");
  Image image = checked(*picture, source, path, options);
  if (opj_decode(codec.get(), stream.get(), picture.get()) == OPJ_FALSE ||
      opj_end_decompress(codec.get(), stream.get()) == OPJ_FALSE) {
    refuse("its samples are damaged or truncated");
  }
  fill(*picture, path, image);
  return image;
}

}  // namespace ddp
