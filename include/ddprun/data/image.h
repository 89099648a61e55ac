// Pictures in memory: read from files, resized, cropped, changed in colour, normalised; and the random numbers for
// that. Does not use LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

namespace ddp {

/// 8-bit RGB pixels in memory order (height, width, 3).
struct Image {
  int64_t height = 0;             ///< in pixels
  int64_t width = 0;              ///< in pixels
  std::vector<uint8_t> pixels{};  ///< height × width × 3 bytes
};

/// Settings of read_image() and decode_image(), all optional.
struct DecodeOptions {
  /// A file that claims more pixels than this is refused before memory for them is taken.
  int64_t most_pixels = int64_t{1} << 28;
};

/// Reads a JPEG, PNG, BMP, PNM (PBM, PGM, PPM), GIF, TIFF, WebP, AVIF or JPEG 2000 file, recognised by its first bytes;
/// TIFF, WebP, AVIF and JPEG 2000 need a build with libtiff, libwebp, libavif and OpenJPEG. If a file has several
/// pictures, the first is read. The result is that of Pillow's convert("RGB"): grey, palettes and CMYK become RGB,
/// opacity is dropped, and a file's gamma and colour space are ignored. Of 16-bit samples the high 8 bits are kept,
/// also of grey ones (which Pillow clips to 255); load_raster() keeps all bits. Orientation tags of JPEG are ignored,
/// as in torchvision; those of TIFF are applied. Throws DataError, one line that names the file, for anything else:
/// another format, a damaged or cut file, too many pixels.
Image read_image(const std::filesystem::path& path, const DecodeOptions& options = {});

/// The same from a file's bytes; `path` is for messages.
Image decode_image(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                   const DecodeOptions& options = {});

/// A stream of random numbers that depends on seed, epoch and index alone: SplitMix64 (Steele, Lea and Flood, 2014).
class SampleRandom {
 public:
  /// The stream of this sample in this epoch.
  SampleRandom(uint64_t seed, int64_t epoch, int64_t index)
      : state_(mix(mix(mix(seed) ^ static_cast<uint64_t>(epoch)) ^ static_cast<uint64_t>(index))) {}

  /// The next 64 random bits.
  uint64_t bits() { return state_ = mix(state_); }

  /// From 0 to below 1.
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  /// From `least` to below `most`.
  double uniform(double least, double most) { return least + (most - least) * uniform(); }

  /// 0 … count-1; count at most 2^32. (Scaled, not divided: the bias is below 2^-32.)
  int64_t below(uint64_t count) { return static_cast<int64_t>((bits() >> 32) * count >> 32); }

 private:
  static uint64_t mix(uint64_t value) {
    value += 0x9E3779B97F4A7C15;
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
    return value ^ (value >> 31);
  }

  uint64_t state_;
};

/// Per channel: (value / 255 - mean) / stddev. The default leaves values in [0, 1].
struct Normalization {
  std::array<float, 3> mean = {0.0F, 0.0F, 0.0F};    ///< of the values in [0, 1]
  std::array<float, 3> stddev = {1.0F, 1.0F, 1.0F};  ///< of the values in [0, 1], above 0
};

/// The result for every channel and 8-bit value, computed in float32 in that order, so that it has the same bits as
/// torchvision's ToTensor and Normalize.
using NormalizationTable = std::array<std::array<float, 256>, 3>;

/// Throws std::invalid_argument, naming the value, unless every mean is finite and every stddev finite and positive.
NormalizationTable normalization_table(const Normalization& normalization);

/// A part of a picture, in pixels.
struct Box {
  int64_t top = 0;     ///< rows above it
  int64_t left = 0;    ///< columns left of it
  int64_t height = 0;  ///< number of rows
  int64_t width = 0;   ///< number of columns
};

/// Resizes the part `box` of the picture to this size. The filter is bilinear, and each output pixel is an average over
/// all input pixels that it covers, so no pixel is skipped when a picture gets smaller. The same pixels as Pillow's
/// crop() and resize(BILINEAR), which torchvision's Resize uses (Pillow 13 goes down before it goes across for some
/// shapes, which differs by 1 at most). Throws std::invalid_argument for a box that is not within the picture and for
/// sizes outside 1 to 65,535.
Image resize(const Image& image, const Box& box, int64_t height, int64_t width);

/// Computes only the part `part` of resize()'s result. `height` and `width` may exceed 65,535; the sides of `part` may
/// not. Throws std::invalid_argument as resize(), and for a part that is not within height and width.
Image resize_part(const Image& image, const Box& box, int64_t height, int64_t width, const Box& part);

/// The part that torchvision's RandomResizedCrop(scale=(0.08, 1), ratio=(3/4, 4/3)) takes: 8 to 100 % of the area,
/// sides in that ratio; after ten failed tries the largest centred part in that range of ratios.
Box draw_resized_crop(int64_t height, int64_t width, SampleRandom& random);

/// torchvision's Resize(`shorter_side`) and CenterCrop(`size`). Throws std::invalid_argument when the crop is larger
/// than the resized picture.
Image resize_and_crop_centre(const Image& image, int64_t shorter_side, int64_t size);

/// A part of a picture that is to be resized: what resize_part() needs besides the picture.
struct ResizedPart {
  Box box{};           ///< of the picture
  int64_t height = 0;  ///< that the box gets
  int64_t width = 0;   ///< that the box gets
  Box part{};          ///< of the resized box
};

/// The part that resize_and_crop_centre() takes of a picture of this size. Throws as that.
ResizedPart centre_part(int64_t height, int64_t width, int64_t shorter_side, int64_t size);

/// How much of a JPEG file is decoded if only a part of its picture is used. Files of other formats are decoded
/// completely.
enum class PartDecoding {
  kWhole,    ///< all data is read, so that damage anywhere in the file is detected; only the part that is used is
             ///< converted to pixels
  kRows,     ///< data is read up to the last row that is used: the same pixels, but damage after that row is not
             ///< detected
  kReduced,  ///< as kRows, and where the part is to become smaller by 2, 4 or 8 times or more, directly at a half, a
             ///< quarter or an eighth of the size: faster, other pixels
};

/// Decodes what is needed of a file's bytes for the part that `choose` names for a picture of its height and width, and
/// resizes it: resize_part() of decode_image(), with the same pixels except for kReduced. `choose` is called once.
/// Throws what these throw.
Image decode_part(const std::vector<uint8_t>& bytes, const std::filesystem::path& path,
                  const std::function<ResizedPart(int64_t height, int64_t width)>& choose,
                  PartDecoding decoding = PartDecoding::kRows, const DecodeOptions& options = {});

/// torchvision's ToTensor and Normalize, mirrored left to right if asked for: `out` has room for (3, height, width)
/// floats, else std::invalid_argument.
void normalize_image(const Image& image, bool is_flipped, const NormalizationTable& table, std::span<float> out);

/// Settings of AugmentedImages, all optional.
struct CropFlipOptions {
  int64_t padding = 4;  ///< pixels of zeros on each side; the crop has the picture's own size
  bool flip = true;     ///< left and right are exchanged with probability 1/2
  uint64_t seed = 0;    ///< what is drawn depends on it, on epoch and on index
};

/// What happens to one picture.
struct CropFlip {
  int64_t down = 0;         ///< the crop's place relative to the picture, -padding … padding
  int64_t right = 0;        ///< the same, in columns
  bool is_flipped = false;  ///< left and right are exchanged
};

/// Draws a crop and a flip, each uniformly distributed. The result depends only on seed, epoch and index, not on the
/// number of workers or ranks.
CropFlip draw_crop_flip(const CropFlipOptions& options, int64_t epoch, int64_t index);

/// Crops, mirrors and normalizes in one pass over the bytes: torchvision's RandomCrop(padding=…), RandomHorizontalFlip,
/// ToTensor and Normalize for these draws. `picture` (channels, height, width) bytes with 1 to 3 channels, `out` as
/// many floats.
void crop_flip_normalize(std::span<const uint8_t> picture, int64_t channels, int64_t height, int64_t width,
                         const CropFlip& draw, const NormalizationTable& table, std::span<float> out);

/// As torchvision's ColorJitter: factors are uniform in [max(0, 1 - x), 1 + x], hue shifts in [-hue, hue] turns, in a
/// random order. 0 does not change that property.
struct ColorJitterOptions {
  double brightness = 0;  ///< above 0: by a factor of up to 1 ± this
  double contrast = 0;    ///< the same
  double saturation = 0;  ///< the same
  double hue = 0;         ///< at most 0.5

  /// Whether anything is changed.
  bool is_active() const { return brightness > 0 || contrast > 0 || saturation > 0 || hue > 0; }
};

/// Throws std::invalid_argument, naming the value, for negative or non-finite ones and a hue above 0.5.
void check_color_jitter(const ColorJitterOptions& options);

/// Changes brightness, contrast, saturation and hue in a random order, each by a random amount.
void color_jitter(Image& image, const ColorJitterOptions& options, SampleRandom& random);

/// The four changes, with the pixels that Pillow's ImageEnhance and torchvision's functions on Pillow images give:
/// towards black (factor 0), or away (above 1).
void adjust_brightness(Image& image, double factor);
/// Towards the mean grey.
void adjust_contrast(Image& image, double factor);
/// Towards the grey picture.
void adjust_saturation(Image& image, double factor);
/// By so many turns of the colour circle, -0.5 to 0.5.
void adjust_hue(Image& image, double turns);

}  // namespace ddp
