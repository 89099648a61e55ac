#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <string>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "ddprun/data/file_formats.h"

namespace ddp {
namespace {

constexpr size_t kHeaderBytes1 = 348;
constexpr size_t kHeaderBytes2 = 540;
constexpr uint64_t kMaxVoxels = uint64_t{1} << 33;

/// Reads the fields of the header by their offset in the struct nifti_1_header or nifti_2_header.
class Header {
 public:
  explicit Header(ByteSource& source) : path_(source.path()) {
    source.read(std::span(bytes_).first(kHeaderBytes1));
    const auto has_size = [&](size_t size) { return at<int32_t>(0) == static_cast<int32_t>(size); };
    if (!has_size(kHeaderBytes1) && !has_size(kHeaderBytes2)) swaps_bytes_ = true;
    is_second_ = has_size(kHeaderBytes2);
    if (is_second_) source.read(std::span(bytes_).subspan(kHeaderBytes1));
    // In version 2, the magic is followed by bytes that reveal whether the file was transferred in text mode.
    const bool has_magic = is_second_ ? std::memcmp(bytes_.data() + 4, "n+2\0\r\n\032\n", 8) == 0
                                      : std::memcmp(bytes_.data() + 344, "n+1", 4) == 0;
    if ((!is_second_ && !has_size(kHeaderBytes1)) || !has_magic) {
      throw DataError(path_,
                      "expected a NIfTI-1 or NIfTI-2 file with header and volume in one file (magic n+1, n+2), got "
                      "another file");
    }
  }

  template <typename Number>
  Number at(size_t place) const {
    std::array<uint8_t, sizeof(Number)> bytes{};
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(place), bytes.size(), bytes.begin());
    if (swaps_bytes_) std::reverse(bytes.begin(), bytes.end());
    return std::bit_cast<Number>(bytes);
  }

  int64_t dimension(size_t i) const { return is_second_ ? at<int64_t>(16 + 8 * i) : at<int16_t>(40 + 2 * i); }
  float spacing(size_t i) const {
    return is_second_ ? static_cast<float>(at<double>(104 + 8 * i)) : at<float>(76 + 4 * i);
  }
  int16_t data_type() const { return at<int16_t>(is_second_ ? 12 : 70); }
  double data_offset() const { return is_second_ ? static_cast<double>(at<int64_t>(168)) : at<float>(108); }
  double slope() const { return is_second_ ? at<double>(176) : at<float>(112); }
  double intercept() const { return is_second_ ? at<double>(184) : at<float>(116); }
  bool swaps_bytes() const { return swaps_bytes_; }
  size_t size() const { return is_second_ ? kHeaderBytes2 : kHeaderBytes1; }

 private:
  std::filesystem::path path_;
  std::array<uint8_t, kHeaderBytes2> bytes_{};
  bool swaps_bytes_ = false;
  bool is_second_ = false;
};

void check_dimensions(const std::filesystem::path& path, const Header& header, bool series) {
  const int64_t count = header.dimension(0);
  if (count < 1 || count > 7) {
    throw DataError(path, "expected 1 to 7 dimensions, got " + std::to_string(count) + ": the header is damaged");
  }
  for (int64_t i = 1; i <= count; ++i) {
    const int64_t size = header.dimension(static_cast<size_t>(i));
    if (size >= 1 && (i <= (series ? 4 : 3) || size == 1)) continue;
    throw DataError(path,
                    "dimension " + std::to_string(i) + " has size " + std::to_string(size) +
                        (series ? "; expected a series of volumes: sizes of 1 or more in the first four dimensions "
                                  "and 1 in the others"
                                : "; expected a single volume: sizes of 1 or more in the first three dimensions "
                                  "and 1 in the others"));
  }
}

/// Converts the stored numbers to floats.
template <typename Number>
void convert(std::span<const uint8_t> stored, const Header& header, std::span<float> values) {
  const double slope = header.slope();
  const double intercept = header.intercept();
  // A slope of 0 means "not scaled". As in nibabel, so does a slope that is not finite.
  const bool is_scaled = slope != 0 && std::isfinite(slope) && (slope != 1 || intercept != 0);
  const auto convert_all = [&](const auto& number) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::array<uint8_t, sizeof(Number)> bytes{};
      std::memcpy(bytes.data(), stored.data() + i * sizeof(Number), sizeof(Number));
      values[i] = number(bytes);
    }
  };
  using Bytes = std::array<uint8_t, sizeof(Number)>;
  if (!header.swaps_bytes() && !is_scaled) {
    convert_all([](const Bytes& bytes) { return static_cast<float>(std::bit_cast<Number>(bytes)); });
    return;
  }
  convert_all([&](Bytes bytes) {
    if (header.swaps_bytes()) std::reverse(bytes.begin(), bytes.end());
    const auto value = std::bit_cast<Number>(bytes);
    return is_scaled ? static_cast<float>(static_cast<double>(value) * slope + intercept) : static_cast<float>(value);
  });
}

void check_scaling(const std::filesystem::path& path, const Header& header) {
  if (header.slope() == 0 || !std::isfinite(header.slope()) || std::isfinite(header.intercept())) return;
  throw DataError(path, "the offset of its voxels (scl_inter) is not a finite number: the header is damaged");
}

template <typename Number>
void read_values(ByteSource& source, const Header& header, std::vector<float>& values, uint64_t count) {
  constexpr uint64_t kAtOnce = 1 << 16;
  source.require(count * sizeof(Number));
  // Limits the number of voxels, because writing a float for each voxel takes as long as decompressing it.
  constexpr uint64_t kAlways = uint64_t{1} << 28;
  constexpr uint64_t kPerByte = 128;
  if (source.is_compressed() && count > kAlways + kPerByte * source.file_bytes()) {
    throw DataError(source.path(), "its " + std::to_string(source.file_bytes()) + " bytes would be decompressed to " +
                                       std::to_string(count) + " voxels: expected at most 2^28 plus 128 per byte");
  }
  values.reserve(static_cast<size_t>(count));  // physical memory is used only as the voxels arrive
  std::vector<uint8_t> stored(static_cast<size_t>(std::min(count, kAtOnce)) * sizeof(Number));
  while (values.size() < count) {
    const auto piece = static_cast<size_t>(std::min(count - values.size(), kAtOnce));
    const auto bytes = std::span(stored).first(piece * sizeof(Number));
    source.read(bytes);
    values.resize(values.size() + piece);
    convert<Number>(bytes, header, std::span(values).last(piece));
  }
}

void read_values(ByteSource& source, const Header& header, std::vector<float>& values, uint64_t count) {
  switch (header.data_type()) {
    case 2:
      return read_values<uint8_t>(source, header, values, count);
    case 4:
      return read_values<int16_t>(source, header, values, count);
    case 8:
      return read_values<int32_t>(source, header, values, count);
    case 16:
      return read_values<float>(source, header, values, count);
    case 64:
      return read_values<double>(source, header, values, count);
    case 256:
      return read_values<int8_t>(source, header, values, count);
    case 512:
      return read_values<uint16_t>(source, header, values, count);
    case 768:
      return read_values<uint32_t>(source, header, values, count);
    case 1024:
      return read_values<int64_t>(source, header, values, count);
    case 1280:
      return read_values<uint64_t>(source, header, values, count);
    default:
      throw DataError(source.path(), "data type " + std::to_string(header.data_type()) +
                                         " is not supported; expected integers of 8 to 64 bits, float32 or float64");
  }
}

/// Returns the product of the sizes, or throws if it is too large.
uint64_t count_of(const std::filesystem::path& path, std::initializer_list<int64_t> sizes) {
  uint64_t count = 1;
  for (const int64_t size : sizes) {
    if (static_cast<uint64_t>(size) > kMaxVoxels / count) {
      throw DataError(path, "has more than 2^33 voxels, by its header");
    }
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

NiftiVolume read_volume(const std::filesystem::path& path, bool series) {
  ByteSource source(path);
  const Header header(source);
  check_dimensions(path, header, series);
  const auto size = [&](size_t i) { return static_cast<int64_t>(i) <= header.dimension(0) ? header.dimension(i) : 1; };
  NiftiVolume volume{
      .depth = size(3),
      .height = size(2),
      .width = size(1),
      .spacing_mm = {std::abs(header.spacing(3)), std::abs(header.spacing(2)), std::abs(header.spacing(1))},
      .volumes = size(4)};
  const uint64_t count = count_of(path, {volume.depth, volume.height, volume.width, volume.volumes});
  const double offset = header.data_offset();
  constexpr double kMaxOffset = 1 << 24;  // integers up to this value are exact in a float
  if (!(offset >= static_cast<double>(header.size()) && offset <= kMaxOffset)) {
    throw DataError(path, "the volume's offset in the file, " + std::to_string(offset) +
                              ", is not after the header or is above 2^24: the header is damaged");
  }
  check_scaling(path, header);
  source.skip(static_cast<uint64_t>(offset) - header.size());
  read_values(source, header, volume.values, count);
  return volume;
}

}  // namespace

NiftiVolume read_nifti(const std::filesystem::path& path, const NiftiOptions& options) {
  return with_data_errors(path, [&] { return read_volume(path, options.series); });
}

}  // namespace ddp
