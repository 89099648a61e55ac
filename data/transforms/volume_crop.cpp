#include "data/transforms/volume_crop.h"

namespace ddp {

VolumeCrop centre_volume_crop(const VolumeShape& volume, const VolumeShape& size) {
  VolumeCrop crop;
  for (size_t axis = 0; axis < 3; ++axis) crop.begin[axis] = (volume[axis] - size[axis]) / 2;
  return crop;
}

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

}  // namespace ddp
