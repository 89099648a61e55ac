// A part of a volume, padded with zeros where the volume ends, mirrored. No LibTorch.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include <ddprun/data/image.h>

namespace ddp {

using VolumeShape = std::array<int64_t, 3>;  ///< depth, height, width

/// Which part is taken.
struct VolumeCrop {
  VolumeShape begin{};  ///< its first voxel in the volume; negative where the volume is smaller
  std::array<bool, 3> mirrored{};
};

/// A crop of `size` anywhere within `volume`, each axis mirrored half of the time if asked for; an axis that is too
/// short is centred.
VolumeCrop draw_volume_crop(const VolumeShape& volume, const VolumeShape& size, bool mirrors, SampleRandom& random);

/// The centre.
VolumeCrop centre_volume_crop(const VolumeShape& volume, const VolumeShape& size);

/// Copies the crop of `volume`, whose `values` have the last axis fastest, to `out`, converted by `convert`; `out` has
/// room for `size`, and gets Out() outside of the volume.
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

}  // namespace ddp
