#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include <ddprun/data/byte_source.h>

#include "data/formats/limits.h"
#include "ddprun/data/file_formats.h"

namespace ddp {
namespace {

constexpr size_t kHeaderBytes = 348;
constexpr uint64_t kMostVoxels = uint64_t{1} << 33;

/// The header's fields by their place in the struct nifti_1_header.
class Header {
 public:
  explicit Header(ByteSource& source) : path_(source.path()) {
    source.read(bytes_);
    if (at<int32_t>(0) != static_cast<int32_t>(kHeaderBytes)) swaps_ = true;
    if (at<int32_t>(0) != static_cast<int32_t>(kHeaderBytes) || std::memcmp(bytes_.data() + 344, "n+1", 4) != 0) {
      throw DataError(path_, "expected a NIfTI-1 file that has header and volume in one (magic n+1), got another file");
    }
  }

  template <typename Number>
  Number at(size_t place) const {
    std::array<uint8_t, sizeof(Number)> bytes{};
    std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(place), bytes.size(), bytes.begin());
    if (swaps_) std::reverse(bytes.begin(), bytes.end());
    return std::bit_cast<Number>(bytes);
  }

  int64_t dimension(size_t i) const { return at<int16_t>(40 + 2 * i); }
  float spacing(size_t i) const { return at<float>(76 + 4 * i); }
  int16_t data_type() const { return at<int16_t>(70); }
  float data_offset() const { return at<float>(108); }
  float slope() const { return at<float>(112); }
  float intercept() const { return at<float>(116); }
  bool swaps() const { return swaps_; }

 private:
  std::filesystem::path path_;
  std::array<uint8_t, kHeaderBytes> bytes_{};
  bool swaps_ = false;
};

void check_dimensions(const std::filesystem::path& path, const Header& header) {
  const int64_t count = header.dimension(0);
  if (count < 1 || count > 7) {
    throw DataError(path, "expected 1 to 7 dimensions, got " + std::to_string(count) + ": the header is damaged");
  }
  for (int64_t i = 1; i <= count; ++i) {
    const int64_t size = header.dimension(static_cast<size_t>(i));
    if (size >= 1 && (i <= 3 || size == 1)) continue;
    throw DataError(path, "dimension " + std::to_string(i) + " has size " + std::to_string(size) +
                              "; expected a single volume, so 1 or more for the first three and 1 for the others");
  }
}

/// Turns the stored numbers into floats.
template <typename Number>
void convert(std::span<const uint8_t> stored, const Header& header, std::span<float> values) {
  const double slope = header.slope();
  const double intercept = header.intercept();
  // A slope of 0 means "not scaled"; nibabel takes one that is not finite so as well.
  const bool is_scaled = slope != 0 && std::isfinite(slope) && (slope != 1 || intercept != 0);
  const auto convert_all = [&](const auto& number) {
    for (size_t i = 0; i < values.size(); ++i) {
      std::array<uint8_t, sizeof(Number)> bytes{};
      std::memcpy(bytes.data(), stored.data() + i * sizeof(Number), sizeof(Number));
      values[i] = number(bytes);
    }
  };
  using Bytes = std::array<uint8_t, sizeof(Number)>;
  if (!header.swaps() && !is_scaled) {
    convert_all([](const Bytes& bytes) { return static_cast<float>(std::bit_cast<Number>(bytes)); });
    return;
  }
  convert_all([&](Bytes bytes) {
    if (header.swaps()) std::reverse(bytes.begin(), bytes.end());
    const auto value = std::bit_cast<Number>(bytes);
    return is_scaled ? static_cast<float>(static_cast<double>(value) * slope + intercept) : static_cast<float>(value);
  });
}

void check_scaling(const std::filesystem::path& path, const Header& header) {
  if (header.slope() == 0 || !std::isfinite(header.slope()) || std::isfinite(header.intercept())) return;
  throw DataError(
      path,
      "its voxels are to be scaled, but what is to be added to them is not a finite number: the header is damaged");
}

template <typename Number>
void read_values(ByteSource& source, const Header& header, std::vector<float>& values, uint64_t count) {
  constexpr uint64_t kAtOnce = 1 << 16;
  source.require(count * sizeof(Number));
  // A float for each takes as long as unpacking it.
  constexpr uint64_t kAlways = uint64_t{1} << 28;
  constexpr uint64_t kPerByte = 128;
  if (source.is_compressed() && count > kAlways + kPerByte * source.file_bytes()) {
    throw DataError(source.path(), "its " + std::to_string(source.file_bytes()) + " bytes would be unpacked to " +
                                       std::to_string(count) + " voxels: expected at most 2^28 plus 128 per byte");
  }
  values.reserve(static_cast<size_t>(count));  // used as the voxels come
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

NiftiVolume read_volume(const std::filesystem::path& path) {
  ByteSource source(path);
  const Header header(source);
  check_dimensions(path, header);
  const auto size = [&](size_t i) { return static_cast<int64_t>(i) <= header.dimension(0) ? header.dimension(i) : 1; };
  NiftiVolume volume{
      .depth = size(3),
      .height = size(2),
      .width = size(1),
      .spacing_mm = {std::abs(header.spacing(3)), std::abs(header.spacing(2)), std::abs(header.spacing(1))}};
  const auto count = static_cast<uint64_t>(volume.depth * volume.height * volume.width);  // each at most 2^15
  if (count > kMostVoxels) throw DataError(path, "has " + std::to_string(count) + " voxels, more than 2^33");
  const float offset = header.data_offset();
  constexpr float kLargestOffset = 1 << 24;  // whole floats up to there are exact
  if (!(offset >= static_cast<float>(kHeaderBytes) && offset <= kLargestOffset)) {
    throw DataError(path, "the volume's offset in the file, " + std::to_string(offset) +
                              ", is not after the header or is above 2^24: the header is damaged");
  }
  check_scaling(path, header);
  source.skip(static_cast<uint64_t>(offset) - kHeaderBytes);
  read_values(source, header, volume.values, count);
  return volume;
}

}  // namespace

NiftiVolume read_nifti(const std::filesystem::path& path) {
  return with_data_errors(path, [&] { return read_volume(path); });
}

}  // namespace ddp
