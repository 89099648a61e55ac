#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include <ddprun/data/byte_source.h>
#include <ddprun/data/file_formats.h>
#include <ddprun/data/image.h>

#include "ddprun/data/image_datasets.h"

namespace ddp {
namespace {

using VolumeShape = std::array<int64_t, 3>;  ///< depth, height, width

/// The part of a volume that is copied.
struct VolumeCrop {
  VolumeShape begin{};  ///< its first voxel in the volume; negative if the volume is smaller
  std::array<bool, 3> mirrored{};
};

/// Copies the crop of `volume` to `out`, converted by `convert`. The last axis of `values` varies fastest. `out` has
/// the size `size`. Its voxels outside of the volume are set to Out().
template <typename Out, typename In, typename Convert>
void crop_volume(std::span<const In> values, const VolumeShape& volume, const VolumeCrop& crop, const VolumeShape& size,
                 Convert convert, Out* out) {
  for (int64_t z = 0; z < size[0]; ++z) {
    for (int64_t y = 0; y < size[1]; ++y) {
      for (int64_t x = 0; x < size[2]; ++x) {
        const VolumeShape place{z, y, x};
        VolumeShape from{};
        bool is_inside = true;
        for (size_t axis = 0; axis < 3; ++axis) {
          const int64_t along = crop.mirrored[axis] ? size[axis] - 1 - place[axis] : place[axis];
          from[axis] = crop.begin[axis] + along;
          is_inside = is_inside && from[axis] >= 0 && from[axis] < volume[axis];
        }
        const auto offset = static_cast<size_t>((from[0] * volume[1] + from[1]) * volume[2] + from[2]);
        *out++ = is_inside ? convert(values[offset]) : Out();
      }
    }
  }
}

// Returns the crop at the centre.
VolumeCrop centre_volume_crop(const VolumeShape& volume, const VolumeShape& size) {
  VolumeCrop crop;
  for (size_t axis = 0; axis < 3; ++axis) crop.begin[axis] = (volume[axis] - size[axis]) / 2;
  return crop;
}

// Returns a crop of `size` at a random position within `volume`. If `mirrors` is set, each axis is mirrored with
// probability 1/2. An axis that is too short is centred.
VolumeCrop draw_volume_crop(const VolumeShape& volume, const VolumeShape& size, bool mirrors, SampleRandom& random) {
  VolumeCrop crop = centre_volume_crop(volume, size);
  for (size_t axis = 0; axis < 3; ++axis) {
    const int64_t room = volume[axis] - size[axis];
    const int64_t begin = random.below(static_cast<uint64_t>(room > 0 ? room + 1 : 1));
    if (room > 0) crop.begin[axis] = begin;
    const bool is_mirrored = random.below(2) == 1;
    crop.mirrored[axis] = mirrors && is_mirrored;
  }
  return crop;
}

VolumeShape shape_of(const NiftiVolume& volume) {
  return {volume.depth, volume.height, volume.width};
}

std::string text_of(const VolumeShape& shape) {
  return std::to_string(shape[0]) + " x " + std::to_string(shape[1]) + " x " + std::to_string(shape[2]);
}

struct Scale {
  double mean = 0;
  double factor = 1;
};

Scale scale_of(std::span<const float> values) {
  double mean = 0;
  for (const float value : values) mean += value;
  mean /= static_cast<double>(values.size());
  double variance = 0;
  for (const float value : values) variance += (value - mean) * (value - mean);
  variance /= static_cast<double>(values.size());
  return {.mean = mean, .factor = variance > 0 ? 1 / std::sqrt(variance) : 1};
}

void check_finite(const NiftiVolume& volume, const std::filesystem::path& file) {
  const auto wrong = std::ranges::find_if_not(volume.values, [](float value) { return std::isfinite(value); });
  if (wrong == volume.values.end()) return;
  throw DataError(file, "voxel " + std::to_string(wrong - volume.values.begin()) + " is not finite");
}

void check_labels(const NiftiVolume& labels, int64_t classes, const std::filesystem::path& file) {
  for (size_t i = 0; i < labels.values.size(); ++i) {
    const float value = labels.values[i];
    const bool is_class = value >= 0 && value == std::floor(value) && value < 0x1p24F &&
                          (classes == 0 || value < static_cast<float>(classes));
    if (is_class) continue;
    throw DataError(file, "voxel " + std::to_string(i) + " has the label " + std::to_string(value) +
                              ", expected a whole number" +
                              (classes == 0 ? "" : " from 0 to " + std::to_string(classes - 1)));
  }
}

}  // namespace

Volumes::Volumes(std::vector<VolumePair> pairs, const VolumesOptions& options)
    : pairs_(std::move(pairs)), options_(options) {
  if (options_.channels < 1) {
    throw std::invalid_argument("Volumes: expected 1 channel or more, got " + std::to_string(options_.channels));
  }
  const VolumeShape& size = options_.size;
  const bool is_whole = size == VolumeShape{};
  if (is_whole || std::ranges::all_of(size, [](int64_t side) { return side > 0; })) return;
  throw std::invalid_argument("Volumes: expected a positive size, or 0 x 0 x 0 for whole volumes, got " +
                              text_of(size));
}

Batch Volumes::get_batch(std::span<const int64_t> indices, int64_t epoch) const {
  const auto count = static_cast<int64_t>(indices.size());
  VolumeShape size = options_.size;
  Batch batch;
  float* data = nullptr;
  int64_t* target = nullptr;
  for (const int64_t index : indices) {
    if (index < 0 || index >= this->size()) {
      throw std::out_of_range("Volumes: index " + std::to_string(index) + " is out of range for " +
                              std::to_string(this->size()) + " volumes");
    }
    const VolumePair& pair = pairs_[static_cast<size_t>(index)];
    const NiftiVolume image = read_nifti(pair.image, {.series = options_.channels > 1});
    const NiftiVolume labels = read_nifti(pair.label);
    const VolumeShape shape = shape_of(image);
    if (shape_of(labels) != shape) {
      throw DataError(pair.label,
                      "expected labels for " + text_of(shape) + " voxels, got " + text_of(shape_of(labels)));
    }
    if (image.volumes != options_.channels) {
      throw DataError(pair.image, "expected the " + std::to_string(options_.channels) +
                                      " volumes of VolumesOptions::channels, got " + std::to_string(image.volumes));
    }
    check_finite(image, pair.image);
    check_labels(labels, options_.classes, pair.label);
    if (size == VolumeShape{}) size = shape;
    if (options_.size == VolumeShape{} && shape != size) {
      throw DataError(pair.image, "its shape " + text_of(shape) + " differs from the batch's " + text_of(size) +
                                      ": set VolumesOptions::size or a batch size of 1");
    }
    const int64_t voxels = size[0] * size[1] * size[2];
    if (data == nullptr) {
      batch = {.data = at::empty({count, options_.channels, size[0], size[1], size[2]}, at::kFloat),
               .target = at::empty({count, size[0], size[1], size[2]}, at::kLong)};
      data = batch.data.mutable_data_ptr<float>();
      target = batch.target.mutable_data_ptr<int64_t>();
    }
    SampleRandom random(options_.seed, epoch, index);
    const VolumeCrop crop =
        options_.augment ? draw_volume_crop(shape, size, /*mirrors=*/true, random) : centre_volume_crop(shape, size);
    const size_t stored = image.values.size() / static_cast<size_t>(options_.channels);
    for (std::span<const float> left = image.values; !left.empty(); left = left.subspan(stored), data += voxels) {
      const auto channel = left.first(stored);
      const Scale scale = options_.normalize ? scale_of(channel) : Scale{};
      const auto scaled = [&](float value) { return static_cast<float>((value - scale.mean) * scale.factor); };
      crop_volume<float, float>(channel, shape, crop, size, scaled, data);
    }
    crop_volume<int64_t, float>(
        labels.values, shape, crop, size, [](float value) { return static_cast<int64_t>(value); }, target);
    target += voxels;
  }
  return batch;
}

}  // namespace ddp
